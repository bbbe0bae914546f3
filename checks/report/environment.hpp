// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace delta {

/// Where a report was made. Nothing in it names a machine, a user or a path.
struct Environment {
  std::string version, commit, compiler, cpu;
  int threads = 0;
  std::string date;  ///< UTC
};

/// This build on this machine, now. The processor is "unknown" where there is no /proc/cpuinfo.
Environment environment();

/// How the user called the program: "./run" or "deltaref". It begins every command that a message or a report suggests.
std::string called_as();

/// A word as a shell takes it: in quotes if it must be.
std::string shell_word(const std::string& s);

}  // namespace delta
