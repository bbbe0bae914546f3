// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"
#include "reference/scalars/rounded.hpp"

#include <cmath>

namespace delta {

// # Ratios of decays: why gamma_i / gamma_j must never be formed
//
// In exact arithmetic H_ij = gamma_i / gamma_j wherever no decay is zero. In floating point gamma
// underflows long before the ratio does. The ratio of two neighbours after 60 tokens of decay 0.1
// is 0.1; computed from its parts it is 0 / 0.

void gamma_ratios(Derivation<Rational>& d) {
  // ## 1. Underflow of the parts
  //
  // The row from which on gamma is zero, in the format of the computation:

  const auto row_of_zero = [](auto alpha) {
    auto gamma = alpha;
    int row = 1;
    for (; !(gamma == decltype(alpha)(0)); ++row) gamma *= alpha;
    return double(row);
  };
  d.near("D5", "fp32, alpha = 0.1: 0 / 0 from row 46", row_of_zero(0.1f), 46, 0);
  d.near("D5", "fp32, alpha = 0.01: from row 23", row_of_zero(0.01f), 23, 0);
  d.near("D5", "fp16, alpha = 0.5: from row 25 or 26, as the last subnormal rounds",
         row_of_zero(Fp16(0.5)), 25.5, 0.5);
  d.near("D5", "fp16, alpha = 0.1: from row 8", row_of_zero(Fp16(0.1)), 8, 0);

  // Before it vanishes gamma is subnormal and has lost its digits: the ratio is finite and wrong.

  float gamma = 1, previous = 1, worst = 0;
  for (int i = 1; i <= 64 && gamma > 0; ++i) {
    previous = gamma, gamma *= 0.2f;
    if (gamma > 0) worst = std::max(worst, std::abs(gamma / previous / 0.2f - 1));
  }
  d.floating("D5", "fp32, alpha = 0.2: finite ratios that are wrong by more than a quarter",
             worst > 0.25f);

  // ## 2. The limits of exp
  //
  // Kept as sums of logarithms g, the decays are exp of differences. exp(-g_j) by itself
  // overflows.

  d.floating("D5", "fp32: exp(88.72) is finite, exp(88.73) is not",
             std::isfinite(std::exp(88.72f)) && std::isinf(std::exp(88.73f)));
  d.floating("D5", "fp32: exp(-103.2) is not zero, exp(-104) is",
             std::exp(-103.2f) > 0 && std::exp(-104.f) == 0);
  d.near("D5", "normal numbers end at -87.3", std::log(std::numeric_limits<float>::min()), -87.3,
         0.05);
  d.floating(
      "D5", "fp16: exp(11.08) is finite, exp(11.1) is not",
      std::isfinite(Fp16(std::exp(11.08)).value()) && std::isinf(Fp16(std::exp(11.1)).value()));

  // Split as exp(g_i) exp(-g_j) with g = -1.5 a token and 64 tokens, the second factor is
  // infinite and the product no number. The difference is harmless:

  const float g_63 = -1.5f * 63, g_64 = -1.5f * 64;
  d.floating("D5", "exp(g_64) exp(-g_63) is not finite",
             !std::isfinite(std::exp(g_64) * std::exp(-g_63)));
  d.near("D5", "exp(g_64 - g_63) is exp(-1.5)", std::exp(g_64 - g_63), std::exp(-1.5), 1e-6);

  // The cure, on a whole mask: difference first, mask before exp, so that the upper half is never
  // evaluated.

  double error = 0;
  float g[64];
  for (int i = 0; i < 64; ++i)
    g[i] = (i ? g[i - 1] : 0) - 0.1f - 1.4f * float(d.random().uniform());
  for (int i = 0; i < 64; ++i)
    for (int j = 0; j <= i; ++j) {
      const double exact = std::exp(double(g[i]) - double(g[j]));
      error = std::max(error, std::abs(std::exp(g[i] - g[j]) / exact - 1));
    }
  d.near("D5", "exp(g_i - g_j) for j <= i: relative error at most 1e-5", error, 0, 1e-5);

  // With one decay per key channel H does not exist as one matrix; the keys carry the factors,
  // over blocks of rows. A decay of at most exp(-5) a token lets 16 rows fit into fp32, 32 rows
  // not:

  d.near("D5", "16 rows: exp(80) = 5.5e34 fits", std::exp(80.f) / 1e34, 5.54, 0.01);
  d.floating("D5", "32 rows: exp(160) does not", std::isinf(std::exp(160.f)));

  // ## 3. Decays near one in bf16
  //
  // A decay of 0.999 rounds to 1 in bf16: nothing is ever forgotten. Its logarithm keeps its
  // digits.

  d.near("D5", "bf16: 0.999 is 1", Bf16(0.999).value(), 1, 0);
  d.near("D5", "4096 tokens at 0.999 should leave 0.0166", std::pow(0.999, 4096), 0.0166, 5e-5);
  d.near("D5", "from ln 0.999 in bf16: 0.0167", std::exp(4096 * Bf16(std::log(0.999)).value()),
         0.0167, 2e-4);

  // A running sum in bf16 stalls as soon as a term is less than half a unit in its last place:

  Bf16 sum(0);
  for (int t = 0; t < 4096; ++t) sum += Bf16(-0.001);
  d.near("D5", "bf16: 4096 times -0.001 sums to -0.5, not to -4.096", sum.value(), -0.5, 0);

  // And in fp32 a sum that runs over the whole sequence loses the small differences that matter.
  // Between two tokens 3 apart, decay -0.1 each, after so much has been summed:

  const auto far = [](float offset) { return (-offset - 0.1f - 0.1f - 0.1f) - (-offset); };
  d.near("D5", "fp32, at -1e6: -0.3 becomes -0.3125 or a neighbour, one unit being 0.0625",
         far(1e6f), -0.3125, 0.0626);
  d.near("D5", "fp32, at -1e7: it becomes 0", far(1e7f), 0, 0);
  // Why: one unit in the last place of 1e7 is 1. Sums are to be kept local to the chunk.

  // ## 4. A decay of zero as a logarithm
  //
  // ln 0 = -infinity, and -infinity - (-infinity) is no number. In a 4 x 4 mask with the reset at
  // row 1:

  const double infinity = std::numeric_limits<double>::infinity();
  const double cumulated[] = {-0.1, -infinity, -infinity, -infinity};
  int nan = 0, columns = 0;
  for (int j = 0; j < 4; ++j) {
    int here = 0;
    for (int i = j; i < 4; ++i) here += std::isnan(std::exp(cumulated[i] - cumulated[j]));
    nan += here, columns += here > 0;
  }
  d.near("D6", "NaN in three columns of the mask", columns, 3, 0);
  d.near("D6", "six entries in all", nan, 6, 0);

  // Two popular substitutes for -infinity. The first leaves a running sum of -3520 after forty
  // resets. One unit of fp32 is 1/4096 there, and later gates are rounded to such units:

  d.near("D6", "clamped at -88 the reset leaks exp(-88) = 6e-39", std::exp(-88.) / 1e-39, 6.05,
         0.05);
  float clamped = 0;
  for (int reset = 0; reset < 40; ++reset) clamped += -88.f;
  const double drifted = std::exp((clamped - 0.3f) - clamped);
  d.near("D6", "and after 40 resets exp(-0.3) has drifted by 5e-5 of itself",
         std::abs(drifted / std::exp(-0.3) - 1) / 1e-5, 5, 0.5);
  d.near("D6", "a 'large' -1e7 destroys later gates: exp(-0.3) = 0.741 becomes 1",
         std::exp((-1e7f - 0.3f) - (-1e7f)), 1, 0);
}

}  // namespace delta
