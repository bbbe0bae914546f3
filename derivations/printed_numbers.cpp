// SPDX-License-Identifier: Apache-2.0
#include "derivations/core/derivation.hpp"

#include <cmath>
#include <numeric>

namespace delta {

// # Printed numbers, computed again from their cells
//
// Averages, differences and settings that are printed in the sources, recomputed in exact
// arithmetic. A rounded number is rounded half up, which decides one tie below.

// "46.01" as the fraction 4601/100.
static Rational dec(std::string s) {
  const std::size_t dot = s.find('.');
  Rational scale(1);
  if (dot != s.npos) {
    for (std::size_t i = dot + 1; i < s.size(); ++i) scale *= 10;
    s.erase(dot, 1);
  }
  return Rational(std::stol(s)) / scale;
}

static Rational rounded(const Rational& x, int digits) {
  Rational scale(1);
  for (int i = 0; i < digits; ++i) scale *= 10;
  const Rational y = x * scale + Rational(1) / 2;
  const auto floor = [](const Rational& z) {
    const auto q = boost::multiprecision::numerator(z) / boost::multiprecision::denominator(z);
    return Rational(q) > z ? Rational(q) - 1 : Rational(q);
  };
  return floor(y) / scale;
}

static Rational mean(std::initializer_list<const char*> cells) {
  Rational sum(0);
  for (const char* c : cells) sum += dec(c);
  return sum / static_cast<int>(cells.size());
}

void printed_numbers(Derivation<Rational>& d) {
  const auto up = [](double x, int digits) { return rounded(Rational(x), digits); };

  // ## 1. Q-Delta against Gated DeltaNet: eight tasks

  const Rational g340 =
      mean({"60.02", "25.94", "40.25", "31.52", "67.30", "51.54", "57.13", "34.40"});
  const Rational q340 =
      mean({"59.51", "28.50", "41.61", "33.90", "67.63", "52.88", "59.48", "34.40"});
  const Rational g13 =
      mean({"68.60", "33.28", "52.60", "43.80", "70.84", "54.78", "59.42", "38.80"});
  const Rational q13 =
      mean({"68.27", "36.60", "53.46", "43.28", "71.44", "54.93", "61.41", "38.40"});
  d.recomputes("F107", "Gated DeltaNet, 340M: 46.01", rounded(g340, 2), dec("46.01"));
  d.recomputes("F107", "Q-Delta, 340M: 47.24", rounded(q340, 2), dec("47.24"));
  d.recomputes("F107", "Gated DeltaNet, 1.3B: 52.77, a tie at 52.765", rounded(g13, 2),
               dec("52.77"));
  d.recomputes("F107", "the tie, exactly", g13, dec("52.765"));
  d.recomputes("F107", "Q-Delta, 1.3B: 53.47", rounded(q13, 2), dec("53.47"));
  d.recomputes("F107", "printed gain 1.23 is the difference of the rounded means",
               dec("47.24") - dec("46.01"), dec("1.23"));
  d.recomputes("F107", "unrounded it is 1.22625", q340 - g340, dec("1.22625"));
  d.recomputes("F107", "gain over the best other model, 46.64: 0.60", dec("47.24") - dec("46.64"),
               dec("0.60"));
  d.recomputes("F107", "printed gain 0.70 at 1.3B", dec("53.47") - dec("52.77"), dec("0.70"));
  d.recomputes("F107", "unrounded it is 0.70875", q13 - g13, dec("0.70875"));

  // ## 2. Nine cells of synthetic retrieval

  d.recomputes(
      "F108", "DeltaNet 81.29",
      rounded(mean({"100.0", "100.0", "100.0", "99.8", "93.6", "49.6", "87.4", "75.8", "25.4"}),
              2),
      dec("81.29"));
  const Rational g9 =
      mean({"100.0", "100.0", "100.0", "100.0", "99.8", "76.6", "83.8", "70.0", "21.4"});
  const Rational q9 =
      mean({"100.0", "100.0", "100.0", "100.0", "99.4", "94.2", "94.6", "74.0", "48.0"});
  d.recomputes("F108", "Gated DeltaNet 83.51", rounded(g9, 2), dec("83.51"));
  d.recomputes("F108", "Q-Delta 90.02", rounded(q9, 2), dec("90.02"));
  d.recomputes("F108", "gain 6.51", dec("90.02") - dec("83.51"), dec("6.51"));
  d.recomputes("F108", "number at 4K: +17.6", dec("94.2") - dec("76.6"), dec("17.6"));
  d.recomputes("F108", "UUID at 4K: +26.6", dec("48.0") - dec("21.4"), dec("26.6"));

  // ## 3. Six real retrieval tasks

  const char *gdn[] = {"29.1", "56.0", "18.9", "48.9", "18.2", "34.2"},
             *qd[] = {"31.6", "52.3", "22.0", "48.6", "18.4", "33.2"};
  const char* printed[] = {"2.5", "-3.7", "3.1", "-0.3", "0.2", "-1.0"};
  Rational sum_g(0), sum_q(0);
  for (int i = 0; i < 6; ++i) {
    d.recomputes("F109", "differences task by task: +2.5 -3.7 +3.1 -0.3 +0.2 -1.0",
                 dec(qd[i]) - dec(gdn[i]), dec(printed[i]));
    sum_g += dec(gdn[i]), sum_q += dec(qd[i]);
  }
  d.recomputes("F109", "Q-Delta 34.35", sum_q / 6, dec("34.35"));
  d.recomputes("F109", "Gated DeltaNet 34.22", rounded(sum_g / 6, 2), dec("34.22"));
  d.recomputes("F109", "the gap, 0.13", rounded((sum_q - sum_g) / 6, 2), dec("0.13"));
  d.recomputes("F109", "Mamba is 6.6 better on one task", dec("55.2") - dec("48.6"), dec("6.6"));
  d.remark("F109b",
           "the averages 38.09, 62.62, 76.58 and 33.92, the rows of RetNet, Mamba and Mamba2 and "
           "those of a fixed lambda are quoted: their cells are not given");

  // ## 4. Ablation and training of Q-Delta

  d.recomputes("F110", "learned lambda against 0.5: +0.04", dec("47.24") - dec("47.20"),
               dec("0.04"));
  d.recomputes("F110", "without decay: 47.24 to 45.86, -1.38", dec("45.86") - dec("47.24"),
               dec("-1.38"));
  d.recomputes("F110", "and still +2.04 over DeltaNet", dec("45.86") - dec("43.82"), dec("2.04"));
  for (const auto& [length, batch] : {std::pair{2048, 16}, {4096, 8}, {8192, 4}, {16384, 2}})
    d.recomputes("F111", "2048 x 16 = 4096 x 8 = 8192 x 4 = 16384 x 2 = 32,768 tokens a step",
                 Rational(length) * batch, 32768);
  d.recomputes("F111", "a curve to step 28,600, every 28: 1,021 points", Rational(28600 / 28),
               1021);
  d.recomputes("F111", "with 12 steps left over", Rational(28600 % 28), 12);
  d.recomputes("F78", "sigmoid(-0.8) = 0.3100", up(1 / (1 + std::exp(0.8)), 4), dec("0.3100"));
  d.recomputes("F96", "sqrt(0.534^2 + 0.061^2) = 0.5375: the three printed drifts fit",
               up(std::sqrt(0.534 * 0.534 + 0.061 * 0.061), 4), dec("0.5375"));
  d.remark("F96", "mean cosine 0.073, mean beta a 0.043: means over 10,000 steps, no bounds");

  // ## 5. Sizes and settings

  d.recomputes("F100", "SwiGLU: three matrices of 8/3 d x d are 8 d^2", Rational(3) * 8 / 3, 8);
  d.recomputes("F100", "q, k, v and the output: 4 d^2", Rational(1 + 1 + 1 + 1), 4);
  d.recomputes("F104", "15B tokens at 0.5M a step: 30,000 steps",
               dec("15000000000") / dec("500000"), 30000);
  d.recomputes("F104", "100B tokens at 2M a step: 50,000 steps",
               dec("100000000000") / dec("2000000"), 50000);
  d.recomputes("F104", "15B tokens in 28,600 steps: 524,476 a step",
               rounded(dec("15000000000") / 28600, 0), 524476);
  d.recomputes("F104", "next to 2^19 = 524,288", Rational(1 << 19), 524288);

  // ## 6. DeltaNet's tables, and three sentences that they contradict

  d.recomputes("F112", "FDA with two full layers: 12.8 to 23.1, +10.3", dec("23.1") - dec("12.8"),
               dec("10.3"));
  d.recomputes("F112", "a state of 256 x against 128 x: twice", Rational(256) / 128, 2);
  d.less("F112", "340M, WikiText: DeltaNet 28.24 below Transformer++ 28.39", dec("28.24"),
         dec("28.39"));
  d.less("F112", "340M, LAMBADA: 37.37 below 42.69", dec("37.37"), dec("42.69"));
  d.less("F112", "the change from L1 to L2 lowers WikiText by more than 3", Rational(3),
         dec("31.12") - dec("28.03"));
  const auto best = [](std::initializer_list<const char*> column) {  // the lowest
    Rational low = dec(*column.begin());
    for (const char* c : column) low = std::min<Rational>(low, dec(c));
    return low;
  };
  d.recomputes("E5", "1.3B, WikiText: the best is 16.55, the hybrid with full layers",
               best({"16.85", "17.25", "16.87", "16.56", "16.55"}), dec("16.55"));
  d.recomputes("E5", "1.3B, LAMBADA: the best is 11.74, the sliding hybrid",
               best({"13.44", "14.92", "12.21", "11.74", "12.40"}), dec("11.74"));
  d.less("E5", "'the sliding hybrid has the best WikiText': its 16.56 is above 16.55",
         dec("16.55"), dec("16.56"));
  d.recomputes("E6",
               "340M, LAMBADA perplexity: the sliding hybrid is 0.80 worse than DeltaNet alone",
               dec("38.17") - dec("37.37"), dec("0.80"));
  d.recomputes("E6", "its accuracy is 1.3 better", dec("33.4") - dec("32.1"), dec("1.3"));
  d.recomputes("E7", "SWDE: ReLU 27.2 is 0.8 above SiLU 26.4", dec("27.2") - dec("26.4"),
               dec("0.8"));
  d.less("E7", "SiLU is best on SQuAD: 28.6 < 28.9", dec("28.6"), dec("28.9"));

  // ## 7. Gated DeltaNet's ablation

  d.recomputes("F113", "without convolution, perplexity 27.35 to 28.95: +1.60",
               dec("28.95") - dec("27.35"), dec("1.60"));
  d.recomputes("F113", "accuracy 47.26 to 46.16: -1.10", dec("46.16") - dec("47.26"),
               dec("-1.10"));
  d.recomputes("F113", "without the output gate 45.46: -1.80", dec("45.46") - dec("47.26"),
               dec("-1.80"));
  d.recomputes("F113", "averages 55.32 and 54.89: +0.43", dec("55.32") - dec("54.89"),
               dec("0.43"));
  d.remark("F113",
           "30.6, 29.8, 26.2, 40.1, 37.0, 37.3 (retrieval), 16.6, 17.8, 18.4 (LongBench) and the "
           "throughputs are quoted: their cells are not given");

  // ## 8. Remarks without a number to compute

  d.remark("F45",
           "products of Householder matrices in WY form come from numerical linear algebra, and "
           "serve flows and orthogonal recurrent networks");
  d.remark("F102",
           "recomputing the states in the backward pass trades time for memory; printed "
           "speed-ups hold for their hardware, use the bench");
  d.remark(
      "F105",
      "systems compared in the sources: Transformer++, RetNet, Mamba, Mamba2, GLA, DeltaNet, "
      "Gated DeltaNet, Longhorn, TTT, Titans, Mesa, Samba, Kimi Linear, Olmo Hybrid");
  d.remark("F106",
           "training throughput is not decoding speed, and batch sizes in the throughput plots "
           "vary with the length");
}

}  // namespace delta
