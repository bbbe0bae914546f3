// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>
#include <string>

/// The page of figures measured on GPUs: everything in gpu/evidence, and whether it still speaks of the sources that
/// are here. \throws std::runtime_error if a file cannot be read as evidence
std::string gpu_page(const std::filesystem::path& root);
