// SPDX-License-Identifier: Apache-2.0
#include <cerrno>
#include <cstring>
#include <fstream>

#include "checks/program/options.hpp"

namespace delta {
namespace {

[[noreturn]] void fail(const std::string& path) {
  throw UsageError("cannot write " + path + ": " + std::strerror(errno) + "; expected a file in a folder that exists");
}

}  // namespace

void require_writable(const std::string& path) {
  if (!std::ofstream(path, std::ios::app)) fail(path);
}

void write_file(const std::string& path, const std::string& content) {
  std::ofstream out(path, std::ios::binary);
  if (!(out << content << std::flush)) fail(path);
}

}  // namespace delta
