#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""index.py PROGRAM [--check]: for each formula the derivations that claim it, the functions that implement it, the tests
that name it, as JSON. Made from the claims of PROGRAM (deltaref-derive), from \\formula{...} in the sources and from the
tests; nothing is written by hand. --check prints nothing and fails if a function names a formula that nobody claims.
"""
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
ID = re.compile(r'\b(F\d{2,3}b?|[ED]\d{1,2}|C-[a-z0-9]+(?:-[a-z0-9]+)*)\b')


def implementations():
    """(formula, 'file:line name') for each \\formula{...} above a function, a struct or a variable."""
    for folder in ('reference', 'gpu', 'derivations', 'checks'):
        for path in sorted((ROOT / folder).rglob('*')):
            if path.suffix not in ('.hpp', '.cuh', '.cu', '.cpp', '.inl'):
                continue
            lines = path.read_text().splitlines()
            for i, line in enumerate(lines):
                labels = re.findall(r'\\formula\{([^}]+)\}', line)
                if not labels:
                    continue
                below = next((j for j in range(i + 1, len(lines)) if not re.match(r'\s*(//|$)', lines[j])), i)
                text = ' '.join(lines[below:below + 3])
                text = re.sub(r'\btemplate\s*<[^{;]*?>\s*(?=[A-Za-z\[])|\brequires\b[^;{]*', '', text)
                name = re.search(r'\b(?:struct|class)\s+(\w+)', text) or re.search(r'([\w:]+)\s*\(', text)
                for label in labels:
                    yield label, '%s:%d %s' % (path.relative_to(ROOT), i + 1, name.group(1) if name else '')


def rules():
    """(label, 'file:line name') for each rule: it carries its label itself."""
    for path in sorted((ROOT / 'reference/rules').glob('*.hpp')):
        for i, line in enumerate(path.read_text().splitlines()):
            for label in re.findall(r'\.label = "([^"]+)"', line):
                yield label, '%s:%d %s' % (path.relative_to(ROOT), i + 1, path.stem)


def main():
    program = subprocess.run([sys.argv[1], '--json'], stdout=subprocess.PIPE, check=False)
    derivations = json.loads(program.stdout)['derivations']
    index = {}

    def entry(label):
        return index.setdefault(label, {'claimed': [], 'implemented': [], 'tested': []})

    for d in derivations:
        for label in {c['id'] for c in d['claims']}:
            entry(label)['claimed'].append(d['name'])
            entry(label)['tested'].append('derivations/walks/All/EveryDerivation.HoldsOverTheRationals/' + d['name'])
    for label, place in [*implementations(), *rules()]:
        entry(label)['implemented'].append(place)
    for path in sorted((ROOT / 'tests').rglob('*.cpp')):
        for label in set(ID.findall(path.read_text())) & set(index):
            entry(label)['tested'].append(str(path.relative_to(ROOT)))

    unclaimed = [label for label, e in index.items() if ID.fullmatch(label) and not e['claimed']]
    for label in unclaimed:
        print('%s is named by %s and claimed nowhere' % (label, ', '.join(index[label]['implemented'])), file=sys.stderr)
    if '--check' not in sys.argv:
        json.dump({k: index[k] for k in sorted(index)}, sys.stdout, indent=1)
        print()
    return 1 if unclaimed or program.returncode else 0


if __name__ == '__main__':
    sys.exit(main())
