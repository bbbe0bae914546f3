#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""vscode.py SUBJECT: does what VS Code does with .vscode/launch.json, in gdb's machine interface, and looks at what an
editor would show. SUBJECT stands in for the program that the task builds.
"""
import json
import pathlib
import re
import shutil
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SKIP = 77


def jsonc(path):
    """JSON with // comments; strings keep theirs."""
    text = re.sub(r'("(?:[^"\\]|\\.)*")|//[^\n]*', lambda m: m.group(1) or '', path.read_text())
    return json.loads(text)


def substituted(text):
    text = text.replace('${workspaceFolder}', str(ROOT)).replace('${fileBasenameNoExtension}', 'ut_transform')
    assert '${' not in text, 'an unknown variable: ' + text
    return text


class Gdb:
    def __init__(self):
        # From another folder, as an editor may start it.
        self.process = subprocess.Popen(['gdb', '-q', '-nx', '--interpreter=mi2'], cwd='/', stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.log = []
        self.until(lambda line: line.startswith('(gdb)'))

    def until(self, wanted):
        for line in self.process.stdout:
            self.log.append(line)
            if wanted(line):
                return line
        raise AssertionError('gdb ended:\n' + ''.join(self.log[-40:]))

    def command(self, text):
        """A command as the adapter sends it: MI as it is, everything else through the console."""
        if not text.startswith('-'):
            text = '-interpreter-exec console ' + json.dumps(text)
        self.process.stdin.write(text + '\n')
        self.process.stdin.flush()
        answer = self.until(lambda line: line.startswith('^'))
        if 'ptrace: Operation not permitted' in answer:
            print('skipped: this machine does not allow tracing')
            sys.exit(SKIP)
        assert not answer.startswith('^error'), text + ': ' + answer
        return answer

    def stopped(self):
        return self.until(lambda line: line.startswith('*stopped'))


def main():
    launch, tasks = jsonc(ROOT / '.vscode/launch.json'), jsonc(ROOT / '.vscode/tasks.json')
    presets = json.loads((ROOT / 'CMakePresets.json').read_text())
    configuration, = launch['configurations']
    task, = tasks['tasks']
    assert configuration['preLaunchTask'] == task['label']
    # The program is the one that the task builds: the folder of its preset, the name of its target.
    assert 'cmake --preset debug ' in task['command'] and '--target deltaref_derive' in task['command'], task['command']
    binary_dir = next(p['binaryDir'] for p in presets['configurePresets'] if 'binaryDir' in p).replace('${presetName}', 'debug')
    assert 'OUTPUT_NAME deltaref-derive' in (ROOT / 'derivations/CMakeLists.txt').read_text()
    assert configuration['program'] == '${workspaceFolder}/' + binary_dir + '/derivations/deltaref-derive'
    assert substituted(configuration['cwd']) == str(ROOT)

    if not shutil.which('gdb'):
        print('skipped: gdb is not installed')
        sys.exit(SKIP)
    gdb = Gdb()
    for setup in configuration['setupCommands']:
        gdb.command(substituted(setup['text']))
    gdb.command('-environment-cd ' + json.dumps(substituted(configuration['cwd'])))
    gdb.command('-file-exec-and-symbols ' + json.dumps(sys.argv[1]))
    gdb.command('-exec-arguments ' + ' '.join(substituted(a) for a in configuration['args']))
    gdb.command('-exec-run')
    stop = gdb.stopped()
    assert 'ut_transform' in stop and 'line="' in stop, 'not stopped in the derivation: ' + stop
    assert any('F37  holds' in line for line in gdb.log), 'the claim is not printed'
    variables = gdb.command('-stack-list-variables --simple-values')
    assert 'name="W"' in variables, variables
    shown = gdb.command('-data-evaluate-expression W')
    assert '[4 x 3] over Q' in shown, 'W is not shown as a matrix: ' + shown
    made = gdb.command('-var-create - * W')  # what the pane of variables does
    assert '[4 x 3] over Q' in made, 'W is no matrix among the variables: ' + made
    gdb.command('-exec-next')
    assert 'ut_transform' in gdb.stopped()
    gdb.command('-exec-continue')
    assert 'ut_transform' in gdb.stopped(), 'the next claim does not stop'
    gdb.command('-gdb-exit')
    print('launch.json, tasks.json and the printers in the machine interface: as expected')


if __name__ == '__main__':
    main()
