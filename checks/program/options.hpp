// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

#include "checks/core/equivalence.hpp"
#include "checks/core/usage_error.hpp"
#include "checks/verify/subject.hpp"

namespace delta {

struct CheckOptions {
  Selection selection;
  std::string shape;  ///< as the table prints it
  std::string html;   ///< where a report is to go; empty: none
  std::string dump;   ///< a directory for dumps of what failed; empty: none
  bool json = false, list = false;
  bool mutants = false;  ///< run the known mistakes as forms and print what kills each
};

struct RulesOptions {
  bool json = false;
};

struct VerifyOptions {
  std::vector<std::string> files;
  DumpOptions dump;
  std::string html;  ///< where a report is to go; empty: none
  bool json = false, strict = false, prove = false, analyse = false;
};

struct VectorsOptions {
  std::string out, check;  ///< directories, one of them given
};

/// One case of the table.
struct ReproOptions {
  std::string rule, form, family, scalar, shape, law, dump;
  std::uint64_t seed = 1;
  bool prove = false;
};

/// Each command returns its exit status: 0 all passed, 1 something failed. Wrong input throws UsageError.
int check_command(const CheckOptions&);
int rules_command(const RulesOptions&);
int verify_command(const VerifyOptions&);
int vectors_command(const VectorsOptions&);
int repro_command(const ReproOptions&);

/// What to run: aliases are resolved, and what is not in the lists is refused.
Selection selection(const CheckOptions& options);

/// Opens a file for a report, so that a name that cannot be written is known before the work. \throws UsageError
void require_writable(const std::string& path);
/// \throws UsageError
void write_file(const std::string& path, const std::string& content);

}  // namespace delta
