// SPDX-License-Identifier: Apache-2.0
// What stands in for the proofs where Arb is missing.
#include <cstdlib>

#include "checks/core/usage_error.hpp"
#include "checks/proof/proof.hpp"

namespace delta {

bool have_balls() { return false; }

void require_balls() {
  throw UsageError(
      "--prove: this build has no Arb, which encloses the exact result in balls; Debian 12: apt-get install "
      "libflint-dev libflint-arb-dev, then configure again with -DDELTAREF_PROVE=ON, or use ./run, which does both");
}

Proof prove(const Subject&, Index, int, double) { require_balls(), std::abort(); }
Proof prove(const Rule&, const Problem<double>&, const Result<double>&) { require_balls(), std::abort(); }

}  // namespace delta
