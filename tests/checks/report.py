# SPDX-License-Identifier: Apache-2.0
"""report.py PROGRAM DUMPS: the reports of `deltaref` as a reader, a browser, a terminal and a log meet them."""
import html.parser
import json
import os
import pathlib
import pty
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as xml

PROGRAM, DUMPS = sys.argv[1], pathlib.Path(sys.argv[2])
FAILED, PASSED = DUMPS / "real_qdelta_chunk_0.safetensors", DUMPS / "real_gdn_chunk_0.safetensors"
HOSTILE = """<img src=x onerror=alert(1)>&"'</title><script>alert(2)</script>\u202egnp"""


def run(*arguments, env=None, **more):
    clean = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR", "DELTAREF_CALLED_AS")}
    return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, env=clean | (env or {}), **more)


def with_metadata(source, target, metadata):
    """A copy of a safetensors file that says something else of itself."""
    data = source.read_bytes()
    size, = struct.unpack("<Q", data[:8])
    header = json.loads(data[8:8 + size])
    header["__metadata__"] |= metadata
    text = json.dumps(header).encode()
    target.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size:])


class Reader(html.parser.HTMLParser):
    """What a browser would load, run and show."""
    VOID = {"meta", "br"}

    def __init__(self, page):
        super().__init__()
        self.stack, self.tags, self.attributes, self.text = [], [], [], ""
        self.feed(page)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]
        if tag not in self.VOID:
            self.stack.append(tag)

    def handle_startendtag(self, tag, attributes):
        inside_svg = "svg" in self.stack
        assert tag in self.VOID or inside_svg, f"<{tag}/> stays open in HTML"
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attributes]

    def handle_endtag(self, tag):
        assert self.stack and self.stack[-1] == tag, f"</{tag}> closes {self.stack[-1:]}"
        self.stack.pop()

    def handle_data(self, data):
        self.text += data


class Page(unittest.TestCase):
    def check(self, path):
        page = path.read_text("utf-8")
        root = xml.fromstring(page)  # strict: every element closed, every attribute quoted, every character allowed
        reader = Reader(page)
        self.assertEqual(reader.stack, [])
        self.assertFalse({"script", "img", "link", "iframe", "object", "base", "form"} & set(reader.tags))
        ids = [v for _, name, v in reader.attributes if name == "id"]
        self.assertEqual(len(ids), len(set(ids)), "ids are unique")
        for tag, name, value in reader.attributes:
            self.assertFalse(name.startswith("on"), (tag, name, value))
            self.assertNotIn(name, ("src", "srcset", "action", "xlink:href"))
            if name == "href":
                self.assertIn(value.removeprefix("#"), ids, "links stay on the page")
            if name == "aria-labelledby":
                self.assertLessEqual(set(value.split()), set(ids))
        style = root.find(".//{*}style").text
        self.assertNotIn("url(", style)
        self.assertNotIn("@import", style)
        pictures = root.findall(".//{*}svg[@role='img']")
        for svg in pictures:
            self.assertTrue(svg.find("{*}title").text and svg.find("{*}desc").text)
        return page, reader, pictures

    def setUp(self):
        folder = tempfile.TemporaryDirectory(prefix="private_folder_")
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.out = self.folder / "report.html"

    def test_one_failed_file(self):
        r = run("verify", FAILED, "--html", self.out)
        self.assertEqual(r.returncode, 1, r.stderr)
        page, reader, pictures = self.check(self.out)
        self.assertGreaterEqual(len(pictures), 5)
        for part in ("failed", "interaction-transposed", "Gate ladder", "first", "Judge it again", "compiler", "threads"):
            self.assertTrue(part in reader.text, part)
        self.assertFalse(str(DUMPS) in page, "no path of this machine")

    def test_passed_and_unreadable_files_together(self):
        broken = self.folder / "broken.safetensors"
        broken.write_bytes(b"\0" * 20)
        r = run("verify", PASSED, broken, FAILED, "--html", self.out)
        self.assertEqual(r.returncode, 2)
        page, reader, _ = self.check(self.out)
        for word in ("passed", "failed", "unreadable", "broken.safetensors"):
            self.assertTrue(word in reader.text, word)
        self.assertFalse("private_folder_" in page, "no path of this machine")

    def test_hostile_names_and_metadata(self):
        name = HOSTILE.replace("/", "") + ".safetensors"
        dump = self.folder / name
        with_metadata(FAILED, dump, {"producer": HOSTILE, "note": HOSTILE + "\x1b[31m\x00", HOSTILE: "</style><svg onload=alert(3)>"})
        bytes_name = os.fsencode(self.folder) + b"/\xff\x1b[2J.safetensors"
        with open(bytes_name, "wb") as f:
            f.write(b"nothing")
        r = run("verify", dump, os.fsdecode(bytes_name), "--html", self.out)
        self.assertEqual(r.returncode, 2)
        page, reader, _ = self.check(self.out)
        self.assertTrue(HOSTILE in reader.text)
        self.assertTrue(name in reader.text)
        self.assertFalse("private_folder_" in page, "no path of this machine")
        self.assertNotIn(b"\x1b", r.stdout + r.stderr, "a name does not drive the terminal")

    def test_check(self):
        r = run("check", "--quick", "--rule", "kda", "delta", "--html", self.out)
        self.assertEqual(r.returncode, 0, r.stderr)
        _, reader, pictures = self.check(self.out)
        self.assertEqual(len(pictures), 1)
        for part in ("Gate ladder", "Ratio by family", "one_solve", "alpha_zero", "chunk_size", "--rule kda --rule delta"):
            self.assertTrue(part in reader.text, part)

    def test_a_report_that_cannot_be_written_is_said_before_the_work(self):
        r = run("verify", FAILED, "--html", self.folder / "no" / "such.html")
        self.assertEqual((r.returncode, r.stdout), (2, b""))
        self.assertEqual(r.stderr.count(b"\n"), 1)
        self.assertIn(b"cannot write", r.stderr)


class Terminal(unittest.TestCase):
    def widest(self, text):
        return max(len(line) for line in text.decode().split("\n"))

    def test_lines_fit(self):
        for width in (40, 57, 80, 120, 200):
            env = {"COLUMNS": str(width)}
            for arguments in (("verify", FAILED, PASSED), ("check", "--quick", "--rule", "kda", "gated_delta_channel")):
                out = run(*arguments, env=env).stdout
                self.assertLessEqual(self.widest(out), width, (arguments, width))
        self.assertGreater(self.widest(out), 100, "room is used")

    def test_many_files_end_with_one_table(self):
        out = run("verify", FAILED, PASSED, env={"COLUMNS": "400"}).stdout.decode()  # however long the path: one line a file
        table = out.split("\n\n")[-1].splitlines()
        self.assertEqual(table[0].split()[:4], ["file", "verdict", "rule", "ratio"])
        self.assertEqual([line.split()[1] for line in table[1:]], ["failed", "passed"])

    def test_a_report_never_replaces_a_dump(self):
        with tempfile.TemporaryDirectory() as folder:
            dump = pathlib.Path(folder) / "dump.safetensors"
            shutil.copy(PASSED, dump)
            done = run("verify", "--html", dump, dump)
            self.assertEqual(done.returncode, 2)
            self.assertIn(b"is one of the dumps", done.stderr)
            self.assertEqual(dump.read_bytes(), PASSED.read_bytes())
            self.assertEqual(run("verify", "--html", "", dump).returncode, 2)

    def test_a_pipe_is_no_dump(self):
        with tempfile.TemporaryDirectory() as folder:
            pipe = pathlib.Path(folder) / "pipe"
            os.mkfifo(pipe)
            done = run("verify", pipe, timeout=20)
            self.assertEqual(done.returncode, 2)
            self.assertIn(b"not a regular file", done.stderr)

    def on_terminal(self, env):
        main, side = pty.openpty()
        clean = {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "NO_COLOR")} | {"TERM": "xterm"} | env
        process = subprocess.Popen([PROGRAM, "verify", str(PASSED)], stdout=side, env=clean)
        os.close(side)
        out = b""
        try:
            while block := os.read(main, 4096):
                out += block
        except OSError:  # the other side is closed
            pass
        process.wait()
        os.close(main)
        return out

    def test_colour_only_where_it_is_wanted(self):
        self.assertIn(b"\x1b[1;32mPASSED\x1b[0m", self.on_terminal({}))
        for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}):
            out = self.on_terminal(env)
            self.assertIn(b"PASSED", out)
            self.assertNotIn(b"\x1b", out)
        self.assertNotIn(b"\x1b", run("verify", PASSED, FAILED, env={"TERM": "xterm"}).stdout)

    def test_messages_name_what_the_user_called(self):
        for name in ("./run", "deltaref"):
            r = run("nonsense", env={"DELTAREF_CALLED_AS": name})
            self.assertEqual(r.returncode, 2)
            self.assertIn(f"try {name} --help".encode(), r.stderr)
            self.assertIn(f"try {name} verify --help".encode(),
                          run("verify", "--nonsense", env={"DELTAREF_CALLED_AS": name}).stderr)
        self.assertRegex(run("verify", "--help", env={"DELTAREF_CALLED_AS": "./run"}).stdout.decode(), r"Usage: \./run verify")


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
