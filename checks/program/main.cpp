// SPDX-License-Identifier: Apache-2.0
// The program `deltaref`: reads the command line, and nothing else. CLI11 stays in this file, it is slow to compile.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <new>

#include "checks/program/options.hpp"
#include "checks/program/whole_number.hpp"
#include "checks/report/environment.hpp"

int main(int argc, char** argv) {
  CLI::App app{"The delta-rule family of linear attention: every formula, every form, checked against each other.",
               delta::called_as()};
  app.require_subcommand(1);
  app.set_version_flag("--version", "deltaref " + delta::environment().version);

  const auto a_name = [](const std::string& file) {
    return file.empty() ? "expected the name of a file" : std::string();
  };
  delta::CheckOptions check;
  CLI::App* c = app.add_subcommand("check", "the equivalence table: rules x forms x scalars x families of inputs");
  c->add_option("--rule", check.selection.rules, "only these rules (or aliases)");
  c->add_option("--form", check.selection.forms, "only these forms");
  c->add_option("--family", check.selection.families, "only these families of inputs");
  c->add_option("--scalar", check.selection.scalars, "only these scalars");
  c->add_option("--shape", check.shape, "only this shape, as the table prints it");
  c->add_option("--law", check.selection.laws, "only these laws, and no table");
  c->add_option("--seed", check.selection.seed, "seed of the inputs")
      ->check(delta::whole_number)
      ->capture_default_str();
  c->add_flag("--quick", check.selection.quick, "one small shape");
  c->add_flag("--full", check.selection.full, "every length and head shape of the sweep")->excludes("--quick");
  c->add_flag("--prove", check.selection.prove,
              "also prove that the double reference is right, at the quick size (needs Arb)");
  c->add_option("--dump", check.dump, "a directory that gets a dump of each case that failed, of twenty at most");
  c->add_flag("--json", check.json, "one JSON document on standard output");
  c->add_option("--html", check.html, "also write a report to this file: one page that needs nothing else")
      ->check(a_name);
  c->add_flag("--mutants", check.mutants, "which check kills each known mistake, as a page in Markdown")
      ->excludes("--json", "--html", "--rule", "--form", "--family", "--scalar", "--shape", "--law", "--quick",
                 "--full");
  c->add_flag("--list", check.list, "list what can be chosen, with its reason, and run nothing");

  delta::RulesOptions rules;
  CLI::App* r = app.add_subcommand("rules", "the rules, their formulas, and what each has: forms, a gradient");
  r->add_flag("--json", rules.json, "one JSON document on standard output");

  delta::VerifyOptions verify;
  CLI::App* v = app.add_subcommand("verify", "judges dumps of somebody's kernel (.safetensors or .npz)");
  v->add_option("file", verify.files, "the dumps")->required();
  v->add_option("--rule", verify.dump.rule, "the rule, for files that do not name it");
  v->add_option("--scale", verify.dump.scale, "the factor of q in the read-out, for files that do not give it");
  v->add_option("--state-layout", verify.dump.state_layout, "kv: states are stored [d_k,d_v]; vk: [d_v,d_k]");
  v->add_flag("--analyse", verify.analyse,
              "also what the rule does to its own state on these inputs: norms, certificate, inverse");
  v->add_flag("--strict", verify.strict, "a marginal verdict counts as failed");
  v->add_flag("--json", verify.json, "one JSON document on standard output");
  v->add_option("--html", verify.html, "also write a report to this file: one page that needs nothing else")
      ->check(a_name);

  v->add_flag("--prove", verify.prove, "also prove the errors: the exact result is enclosed in balls (needs Arb)");

  delta::VectorsOptions vectors;
  CLI::App* w = app.add_subcommand("vectors", "writes test vectors: inputs, exact outputs, gradients, intermediates");
  CLI::Option* out = w->add_option("--out", vectors.out, "the directory to write them and their manifest to");
  w->add_option("--check", vectors.check, "a directory whose files are held against their manifest")->excludes(out);

  delta::ReproOptions repro;
  CLI::App* p = app.add_subcommand("repro", "replays one case of the table, as a failure names it");
  p->add_option("--rule", repro.rule, "its rule")->required();
  p->add_option("--form", repro.form, "its form")->required();
  p->add_option("--family", repro.family, "its family of inputs")->required();
  p->add_option("--shape", repro.shape, "its shape, as the table prints it")->required();
  p->add_option("--scalar", repro.scalar, "its scalar")->required();
  p->add_option("--seed", repro.seed, "its seed")->check(delta::whole_number)->capture_default_str();
  p->add_option("--law", repro.law, "the law, if it is one that was broken");
  p->add_flag("--prove", repro.prove, "the proof of the case as well (needs Arb)");
  p->add_option("--dump", repro.dump, "a directory that gets the case as a dump for verify, with its intermediates");

  try {
    app.parse(argc, argv);
    const int status = *c   ? delta::check_command(check)
                       : *r ? delta::rules_command(rules)
                       : *w ? delta::vectors_command(vectors)
                       : *p ? delta::repro_command(repro)
                            : delta::verify_command(verify);
    // A verdict that could not be written is none.
    if (!std::cout.flush() || std::fflush(stdout) != 0)
      throw delta::UsageError("cannot write the output; is the disk full?");
    return status;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) return app.exit(e);  // --help
    const std::vector<std::string> rest = app.remaining();
    const bool unknown = app.get_subcommands().empty() && !rest.empty();
    std::cerr << "deltaref: "
              << (unknown ? "unknown command '" + delta::printable(rest[0]) + "'" : delta::printable(e.what()))
              << (app.get_subcommands().empty() ? "; expected check, repro, rules, vectors or verify" : "") << "; try "
              << delta::called_as() << (app.get_subcommands().empty() ? "" : " " + app.get_subcommands()[0]->get_name())
              << " --help\n";
    return 2;
  } catch (const delta::UsageError& e) {
    std::cerr << "deltaref: " << e.what() << '\n';
    return 2;
  } catch (const std::bad_alloc&) {
    std::cerr << "deltaref: this needs more memory than there is; try a smaller --shape\n";
    return 2;
  }
}
