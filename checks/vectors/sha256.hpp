// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <span>
#include <string>

namespace delta {

/// The SHA-256 of some bytes in hexadecimal, as `sha256sum` prints it. Of our own, since a library for this one
/// function would be one more to install. \source{FIPS 180-4}
std::string sha256(std::span<const std::byte> bytes);

}  // namespace delta
