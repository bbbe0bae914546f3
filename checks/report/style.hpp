// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "checks/report/html.hpp"

namespace delta {

/// The style sheet of every report. h0 to h8 are classes of a ratio (passed to not finite): their lightness runs one
/// way, so that they can be told apart without seeing colour; s0 to s5 are curves, which also differ in their dashes.
inline const Html kStyle = R"css(
:root { color-scheme: light dark;
  --page: #f6f7f8; --card: #fff; --ink: #1b2128; --soft: #59636e; --rule: #dde1e6; --shade: #f0f2f4; --link: #0b5cad;
  --passed: #13713f; --marginal: #8a5a00; --failed: #b01c1c; --untrusted: #6b3fa0; --skipped: #59636e;
  --h0: #e8eff6; --h1: #cfdfee; --h2: #aecbe4; --h3: #f4ce5c; --h4: #f0994a; --h5: #dd5f3b; --h6: #b22a3d; --h7: #6e1346; --h8: #16121c;
  --s0: #0b5cad; --s1: #b8500c; --s2: #12805c; --s3: #8a3fa8; --s4: #7a6a00; --s5: #b01c58; }
@media screen and (prefers-color-scheme: dark) { :root {
  --page: #0f1317; --card: #171c22; --ink: #e4e8ec; --soft: #98a3ae; --rule: #2c343d; --shade: #1e252c; --link: #74b4f5;
  --passed: #55c98a; --marginal: #e3b341; --failed: #ff8078; --untrusted: #c39bff; --skipped: #98a3ae;
  --h0: #1c2733; --h1: #22384c; --h2: #2a4c69; --h3: #9a7516; --h4: #c06a22; --h5: #e0603a; --h6: #f7836c; --h7: #ffb9a6; --h8: #ffffff;
  --s0: #74b4f5; --s1: #f0955a; --s2: #55c9a0; --s3: #d19cf0; --s4: #d3c04a; --s5: #ff8fb8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
main { max-width: 70rem; margin: 0 auto; padding: 1.5rem clamp(.75rem, 3vw, 2rem) 3rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0; letter-spacing: -.01em; }
h2 { font-size: 1.2rem; line-height: 1.3; margin: 0; }
h3 { font-size: .8rem; text-transform: uppercase; letter-spacing: .07em; color: var(--soft); margin: 1.75rem 0 .5rem; }
p { margin: .4rem 0; max-width: 65ch; } p.counts { max-width: none; }
a { color: var(--link); }
small, figcaption, caption { color: var(--soft); }
code, kbd, pre, .n { font-family: ui-monospace, "Cascadia Mono", "DejaVu Sans Mono", Menlo, Consolas, monospace; font-size: .875em; }
.n, th.n { text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }
pre { background: var(--shade); border-radius: 6px; padding: .6rem .8rem; white-space: pre-wrap; margin: .5rem 0; }
header { margin-bottom: 1.25rem; }
section, details.file { background: var(--card); border: 1px solid var(--rule); border-radius: 10px; padding: 1.25rem clamp(.9rem, 2.5vw, 1.6rem) 1.4rem; margin: 1.25rem 0; }
section > h3:first-child { margin-top: 0; }
summary { cursor: pointer; }
summary > * { display: inline; }
.file { border-left: 5px solid var(--rule) !important; }
.file.passed { border-left-color: var(--passed) !important; } .file.marginal { border-left-color: var(--marginal) !important; }
.file.failed, .file.unreadable { border-left-color: var(--failed) !important; } .file.untrusted { border-left-color: var(--untrusted) !important; }
.verdict { display: inline-block; font-size: .8rem; font-weight: 650; letter-spacing: .03em; border: 1.5px solid currentColor; border-radius: 99px; padding: .02rem .6rem; white-space: nowrap; }
.verdict.passed { color: var(--passed); } .verdict.marginal { color: var(--marginal); } .verdict.failed, .verdict.unreadable { color: var(--failed); }
.verdict.untrusted { color: var(--untrusted); } .verdict.skipped { color: var(--skipped); }
.title { display: flex; flex-wrap: wrap; gap: .4rem .8rem; align-items: center; }
.reason { font-size: 1.05rem; margin-top: .6rem; }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; margin: .25rem 0; font-size: .92rem; }
caption { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
th, td { text-align: left; padding: .35rem .7rem .35rem 0; border-bottom: 1px solid var(--rule); vertical-align: baseline; overflow-wrap: normal; }
td.file-name, td.wrap { overflow-wrap: anywhere; min-width: 11rem; } td.file-name { min-width: min(19rem, 40vw); }
thead th.n { font-family: inherit; font-size: .8rem; }
th small { font-weight: 400; }
thead th { color: var(--soft); font-weight: 500; font-size: .8rem; }
tbody tr:last-child > * { border-bottom: 0; }
th { font-weight: 550; }
.cells td, .cells th { padding: .2rem .45rem; border-bottom: 0; }
.cells td.n { text-align: center; border: 1px solid var(--card); border-radius: 4px; }
.cells td.h0, .cells td.h1, .cells td.h2, .cells td.h3, .cells td.h4 { color: var(--ink); }
.cells td.h5, .cells td.h6, .cells td.h7, .cells td.h8 { color: var(--card); font-weight: 650; }
.cells th[scope=row] { position: sticky; left: 0; background: var(--card); overflow-wrap: anywhere; }
@media (max-width: 40rem) { .cells th[scope=row] { max-width: 7.5rem; } .cells th small { display: none; } }
td.exact { color: var(--passed); font-weight: 650; } td.nothing { color: var(--soft); }
td.bar-cell { width: 24%; min-width: 6rem; vertical-align: middle; }
@media (max-width: 40rem) { .bar-cell { display: none; } }
.bar { position: relative; display: block; height: .8rem; background: var(--shade); border-radius: 3px; }
.bar i { position: absolute; top: 0; bottom: 0; }
.bar .fill { left: 0; border-radius: 3px; } .bar .limit { width: 0; border-left: 1.5px solid var(--soft); top: -3px; bottom: -3px; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1.1rem; margin: .5rem 0; font-size: .92rem; }
dt { color: var(--soft); } dd { margin: 0; min-width: 0; }
@media (max-width: 36rem) { dl { grid-template-columns: 1fr; gap: 0; } dd { margin-bottom: .5rem; } }
.mistake { border: 1px solid var(--rule); border-radius: 8px; padding: .8rem 1rem; margin: .6rem 0; }
.mistake .formulas { display: grid; grid-template-columns: max-content 1fr; gap: .3rem 1rem; align-items: baseline; margin-top: .5rem; }
@media (max-width: 36rem) { .mistake .formulas { grid-template-columns: 1fr; gap: 0; } }
.formulas > span { color: var(--soft); font-size: .88rem; }
.formula { font: 1.12em/1.5 "STIX Two Text", "Latin Modern Roman", "Libertinus Serif", Cambria, Georgia, "DejaVu Serif", serif; white-space: nowrap; }
.formula .o { margin: 0 .22em; } .formula sub, .formula sup { font-size: .7em; line-height: 0; } .formula .words { font: .9em system-ui, sans-serif; white-space: pre; }
.formula .scripts { display: inline-flex; flex-direction: column; vertical-align: middle; font-size: .7em; line-height: 1.15; margin-right: .08em; }
.over-hat, .over-tilde, .over-bar { position: relative; display: inline-block; }
.over-hat::before, .over-tilde::before, .over-bar::before { position: absolute; left: 0; right: 0; text-align: center; top: -.15em; font-size: .85em; }
.over-hat::before { content: "\2c6"; } .over-tilde::before { content: "\2dc"; } .over-bar::before { content: "\af"; }
.formula-line { overflow-x: auto; overflow-y: hidden; padding: .3rem 0; overflow-wrap: normal; }
figure { margin: 1rem 0 1.5rem; break-inside: avoid; }
section > :last-child { margin-bottom: 0; }
figcaption { font-size: .88rem; margin-bottom: .5rem; max-width: 90ch; } figcaption strong { color: var(--ink); font-weight: 600; }
.plot { display: grid; grid-template-columns: 3.9rem minmax(0, 1fr); grid-template-rows: var(--height) 2.4rem; font-size: .75rem; color: var(--soft); font-variant-numeric: tabular-nums; }
.area { position: relative; } .area svg { position: absolute; inset: 0; width: 100%; height: 100%; background: var(--shade); overflow: hidden; shape-rendering: crispEdges; }
.y, .x { position: relative; overflow-wrap: normal; } .y span { position: absolute; right: .45rem; transform: translateY(-50%); white-space: nowrap; }
.y b { position: absolute; left: 0; top: 50%; font-weight: 400; writing-mode: vertical-rl; transform: translateY(-50%) rotate(180deg); white-space: nowrap; }
.x { grid-column: 2; } .x span { position: absolute; top: .15rem; transform: translateX(-50%); white-space: nowrap; }
.x b { position: absolute; top: 1.15rem; left: 0; right: 0; text-align: center; font-weight: 400; }
.mark { position: absolute; width: 16px; height: 16px; margin: -8px 0 0 -8px; border: 2px solid var(--ink); border-radius: 50%; outline: 2px solid var(--card); }
.threshold { position: absolute; right: .4rem; transform: translateY(-100%); font-style: normal; color: var(--failed); background: var(--shade); border-radius: 3px; padding: 0 .3rem; line-height: 1.35; font-size: .72rem; }
.chunks { fill: none; stroke: var(--card); stroke-width: 1.4; vector-effect: non-scaling-stroke; opacity: .85; }
.grid { fill: none; stroke: var(--rule); stroke-width: 1; vector-effect: non-scaling-stroke; }
.line { fill: none; stroke-width: 1.8; vector-effect: non-scaling-stroke; stroke-linejoin: round; shape-rendering: geometricPrecision; }
.dot { fill: none; stroke-width: 7; stroke-linecap: round; vector-effect: non-scaling-stroke; shape-rendering: geometricPrecision; }
.dot.beyond { stroke: var(--h8); stroke-linecap: square; }
.failing { fill: var(--failed); opacity: .07; } .doubtful { fill: var(--h3); opacity: .45; }
.h0 { fill: var(--h0); background: var(--h0); } .h1 { fill: var(--h1); background: var(--h1); } .h2 { fill: var(--h2); background: var(--h2); }
.h3 { fill: var(--h3); background: var(--h3); } .h4 { fill: var(--h4); background: var(--h4); } .h5 { fill: var(--h5); background: var(--h5); }
.h6 { fill: var(--h6); background: var(--h6); } .h7 { fill: var(--h7); background: var(--h7); } .h8 { fill: var(--h8); background: var(--h8); }
.bar .h0, .bar .h1, .bar .h2 { background: var(--s0); }
.s0 { stroke: var(--s0); } .s1 { stroke: var(--s1); stroke-dasharray: 7 3; } .s2 { stroke: var(--s2); stroke-dasharray: 2 3; }
.s3 { stroke: var(--s3); stroke-dasharray: 9 3 2 3; } .s4 { stroke: var(--s4); stroke-dasharray: 4 4; } .s5 { stroke: var(--s5); stroke-dasharray: 12 4; }
.dot.s0, .dot.s1, .dot.s2, .dot.s3, .dot.s4, .dot.s5 { stroke-dasharray: none; }
.legend { display: flex; flex-wrap: wrap; gap: .25rem .9rem; font-size: .78rem; color: var(--soft); max-width: none; align-items: center; }
.legend b { font-weight: 600; } .legend span { display: inline-flex; align-items: center; gap: .35rem; white-space: nowrap; }
.swatch { width: 1.1rem; height: .8rem; border: 1px solid var(--rule); } .key { width: 28px; height: 10px; }
@media print { body { background: none; font-size: 10pt; } main { max-width: none; padding: 0; } section, .file { border-color: #bbb; break-inside: auto; }
  .scroll { overflow: visible; } * { print-color-adjust: exact; -webkit-print-color-adjust: exact; } h2, h3 { break-after: avoid; } tr, .mistake { break-inside: avoid; } }
)css"_html;

}  // namespace delta
