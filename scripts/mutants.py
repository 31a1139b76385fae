#!/usr/bin/env python3
"""Changes the code in one place at a time, and runs the tests on each change: `make mutants`.

A change that no test detects has survived. Either a test is missing, or the change makes no difference. The file
scripts/mutants.expected lists the changes of the second kind, with reasons. Any other survivor is an error.

Changes of Lua (crates/wire/src/scripts): drop a redis.call or redis.pcall, negate a comparison, include or exclude its
bound, swap `and` and `or`, flip a boolean, drop a `not`, drop an option such as 'NX'.
Changes of Rust (src and the inner crates, without their tests): those of comparisons and booleans, swap `&&` and `||`,
add 1 to an integer or subtract 1, drop a `!`, drop a guard that returns.

A changed script needs no compiler, because test binaries read scripts from the folder in KEYLAPSE_SCRIPTS. Rust is changed
in a copy of the tree in target/, and each change needs a build. A commit before KEYLAPSE_SCRIPTS (--tree) has its scripts
changed in the copy, too.

The program needs only Python's standard library, and is not compiled together with the code that it changes.
"""

import argparse
import concurrent.futures
import json
import os
import pathlib
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time

# The judges of a mutant, fastest first: a name, the target that cargo builds, the arguments that select its tests, and, if
# the judge is only for one folder, that folder. Tests that compare the texts of scripts would detect every change, so they
# are no judges.
LUA_JUDGES = [
    ("rules", ["--test", "suite"], ["model::rules::", "--skip", "hundred_thousand"]),
    ("lib", ["-p", "keylapse", "--lib"], []),
    ("scripts", ["--test", "scripts"], ["flags::", "refusals::"]),
    ("listening", ["--test", "suite"], ["listening::"]),
    ("producing", ["--test", "suite"], ["server::producing::", "server::holding::", "server::wire::",
                                        "--skip", "the_example_in_a_shell"]),  # fmt: skip
    ("kit", ["--test", "suite"], ["kit::"]),
    ("machine", ["--test", "suite"], ["model::machine::", "hundred_thousand"]),
    ("server", ["--test", "suite"], ["server::lost_replies::", "server::hostile::", "server::life::", "server::on_time::",
                                     "server::python::", "server::subscription::", "server::forwarding::",
                                     "server::proxies::"]),  # fmt: skip
    ("attached", ["--test", "attached"], ["--test-threads=12"]),
]
RUST_JUDGES = [
    (crate, ["-p", f"keylapse-{crate}", "--lib"], [], f"crates/{crate}/") for crate in ("pattern", "connection", "wire")
] + sorted(LUA_JUDGES, key=lambda judge: judge[0] != "lib")
# A judge hangs, and has caught the mutant, after this many times its usual time plus these seconds.
TIMEOUT_FACTOR, TIMEOUT_EXTRA_S = 4, 10
EXPECTED = "scripts/mutants.expected"
SEED = 10


# --- Mutants ------------------------------------------------------------------------------------


class Mutant:
    """One change: `text[start:end]` of a file becomes `new`."""

    def __init__(self, file, text, start, end, kind, new):
        self.file, self.start, self.end, self.kind, self.new = file, start, end, kind, new
        self.line = text.count("\n", 0, start) + 1
        self.column = start - (text.rfind("\n", 0, start) + 1) + 1
        self.id = f"{file}:{self.line}:{self.column} {kind}"
        self.key = f"{file}: {self._in_line(text)}"

    def _in_line(self, text):
        """Returns the line with the change in brackets. Unlike a line number, it survives edits of other lines."""
        before = text[text.rfind("\n", 0, self.start) + 1 : self.start]
        after = text[self.end : (text + "\n").index("\n", self.end)]
        change = f"[{text[self.start:self.end]} -> {self.new.strip()}]"
        return " ".join(f"{before}{change}{after}".split())

    def apply(self, text):
        lines = text.count("\n", self.start, self.end)
        return text[: self.start] + self.new + "\n" * lines + text[self.end :]


def number_repeats(mutants):
    """Adds a number to the keys of equal changes of equal lines in one file."""
    seen = {}
    for mutant in mutants:
        count = seen[mutant.key] = seen.get(mutant.key, 0) + 1
        if count > 1:
            mutant.key += f" ({count})"
    return mutants


def tokens(text, pattern):
    """Returns (kind, text, start, end) of each token except blanks and comments."""
    found = [(m.lastgroup, m.group(), m.start(), m.end()) for m in re.finditer(pattern, text, re.S | re.X)]
    return [token for token in found if token[0] not in ("comment", "blank")]


def closing(toks, at):
    """Returns the index of the bracket that closes the one at `at`."""
    depth = 0
    for i in range(at, len(toks)):
        if toks[i][1] in "([{" and toks[i][0] == "op":
            depth += 1
        elif toks[i][1] in ")]}" and toks[i][0] == "op":
            depth -= 1
            if depth == 0:
                return i
    return None


LUA = r"""
  (?P<comment>--\[\[.*?\]\]|--[^\n]*) | (?P<blank>\s+)
| (?P<string>'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*") | (?P<number>\d[\w.]*)
| (?P<name>[A-Za-z_]\w*) | (?P<op>\.\.\.|\.\.|==|~=|<=|>=|.)
"""
NEGATED = {"==": "~=", "~=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
EDGE = {"<": "<=", "<=": "<", ">": ">=", ">=": ">"}
SWAPPED = {"and": "or", "or": "and", "true": "false", "false": "true"}
OPTIONS = {"'NX'", "'XX'", "'GT'", "'LT'", "'CH'", "'KEEPTTL'", "'REV'", "'BYSCORE'", "'WITHSCORES'"}
# Tokens before an expression. A call after any other token is a statement.
BEFORE_VALUE = {"=", "(", ",", "{", "[", "return", "and", "or", "not", "in", "if", "elseif", "while", "until",
                "..", "#", "-", "+", "*", "/", "%", "==", "~=", "<", "<=", ">", ">="}  # fmt: skip
LISTS = {"HMGET", "HGETALL", "HKEYS", "HSCAN", "MGET", "SCAN", "TIME", "XRANGE", "ZRANGE", "ZRANGEBYSCORE", "ZMSCORE"}
NUMBERS = {"DEL", "EXISTS", "HDEL", "HEXISTS", "HLEN", "HSET", "INCR", "PEXPIRE", "PEXPIRETIME", "PTTL", "PUBLISH",
           "SPUBLISH", "STRLEN", "ZADD", "ZCARD", "ZCOUNT", "ZREM", "ZREMRANGEBYRANK", "ZREMRANGEBYSCORE"}  # fmt: skip


def lua_mutants(file, text):
    toks = tokens(text, LUA)
    for i, (kind, word, start, end) in enumerate(toks):
        before = toks[i - 1][1] if i else ""
        if word == "redis" and [t[1] for t in toks[i + 1 : i + 4]] in (["." , "call", "("], [".", "pcall", "("]):
            last = toks[closing(toks, i + 3)][3]
            command = toks[i + 4][1].strip("'\"")
            value = "({})" if command in LISTS else "(0)" if command in NUMBERS else "(false)"
            new = value if before in BEFORE_VALUE else "do end"
            yield Mutant(file, text, start, last, "drop-call", new)
        elif kind == "op" and word in NEGATED:
            yield Mutant(file, text, start, end, "negate", NEGATED[word])
            if word in EDGE:
                yield Mutant(file, text, start, end, "edge", EDGE[word])
        elif kind == "name" and word in SWAPPED:
            yield Mutant(file, text, start, end, "swap" if word in ("and", "or") else "flag", SWAPPED[word])
        elif word == "not":
            yield Mutant(file, text, start, end, "drop-not", "")
        elif word in OPTIONS and before == ",":
            yield Mutant(file, text, toks[i - 1][2], end, "drop-option", "")


RUST = r"""
  (?P<comment>//[^\n]*|/\*.*?\*/) | (?P<blank>\s+)
| (?P<string>b?r(?P<hash>\#*)".*?"(?P=hash)|[bc]?"(?:\\.|[^"\\])*"|b?'(?:\\(?:u\{[^}]*\}|x..|.)|[^'\\])')
| (?P<life>'[A-Za-z_]\w*) | (?P<number>\d[\w]*(?:\.\d\w*)?) | (?P<name>(?:r\#)?[A-Za-z_]\w*)
| (?P<op>\.\.=|\.\.\.|\.\.|==|!=|<=|>=|=>|->|&&|\|\||::|.)
"""
RUST_NEGATED = {"==": "!=", "!=": "==", "<": ">=", "<=": ">", ">": "<=", ">=": "<"}
RUST_SWAPPED = {"&&": "||", "||": "&&", "true": "false", "false": "true"}


def rust_skipped(toks):
    """Returns the indexes of the tokens of attributes and of test items, which are not changed."""
    skipped, i = set(), 0
    while i < len(toks):
        if toks[i][1] == "#" and i + 1 < len(toks) and toks[i + 1][1] in ("[", "!"):
            end = closing(toks, i + 1 if toks[i + 1][1] == "[" else i + 2)
            test = "cfg" in (t[1] for t in toks[i:end]) and {"test", "fuzzing"} & {t[1] for t in toks[i:end]}
            if test:  # up to the end of the item
                end += 1
                while toks[end][1] not in (";", "{") or toks[end][0] != "op":
                    end += 1
                end = closing(toks, end) if toks[end][1] == "{" else end
            skipped.update(range(i, end + 1))
            i = end
        i += 1
    return skipped


def rust_mutants(file, text):
    toks = tokens(text, RUST)
    skipped = rust_skipped(toks)
    for i, (kind, word, start, end) in enumerate(toks):
        if i in skipped or i == 0 or i + 1 == len(toks):
            continue
        spaced = text[start - 1].isspace() and text[end : end + 1].isspace()
        if kind == "op" and word in RUST_NEGATED and spaced:
            yield Mutant(file, text, start, end, "negate", RUST_NEGATED[word])
            if word in EDGE:
                yield Mutant(file, text, start, end, "edge", EDGE[word])
        elif word in RUST_SWAPPED and (kind == "name" or kind == "op" and spaced and toks[i - 1][1] not in "=(,"):
            yield Mutant(file, text, start, end, "flag" if kind == "name" else "swap", RUST_SWAPPED[word])
        elif kind == "number" and re.fullmatch(r"[\d_]+", word) and toks[i - 1][1] != ".":
            number = int(word.replace("_", ""))
            yield Mutant(file, text, start, end, "plus-1", str(number + 1))
            if number:
                yield Mutant(file, text, start, end, "minus-1", str(number - 1))
        elif word == "!" and kind == "op" and toks[i - 1][0] != "name" and toks[i - 1][1] != "#":
            yield Mutant(file, text, start, end, "drop-not", "")
        elif word == "!" and toks[i - 1][1] in ("if", "while", "return", "in"):
            yield Mutant(file, text, start, end, "drop-not", "")
        elif word == "{" and toks[i + 1][1] == "return" and (last := closing(toks, i)):
            inside = [t[1] for t in toks[i + 1 : last]]
            after = toks[last + 1][1] if last + 1 < len(toks) else ""
            if inside.count(";") <= 1 and toks[i - 1][1] not in ("else", "=>") and after != "else":
                yield Mutant(file, text, start + 1, toks[last][2], "drop-guard", "")


def sources(tree):
    """Returns the Rust files of the library and of its inner crates."""
    folders = ["src", "crates/connection", "crates/pattern", "crates/wire"]
    return sorted(path for folder in folders for path in tree.glob(f"{folder}/**/*.rs"))


def all_mutants(tree, only, files):
    lua = sorted(tree.glob("crates/wire/src/scripts/*.lua")) if only != "rust" else []
    rust = sources(tree) if only != "lua" else []
    found = []
    for path in lua + rust:
        file = path.relative_to(tree).as_posix()
        if re.search(r"/(tests?|testing|fuzzing)/|[/_]tests\.rs$|/(inside|oracle|rig)\.rs$", file):
            continue
        if files and not any(wanted in file for wanted in files):
            continue
        text = path.read_text()
        found += number_repeats(list((lua_mutants if path.suffix == ".lua" else rust_mutants)(file, text)))
    return found


# --- Judges -------------------------------------------------------------------------------------


def build(tree, target, args):
    """Returns the test binary of a target and "", or None and the output of the compiler."""
    command = ["cargo", "test", "-q", "--no-run", "--message-format=json", *args]
    env = dict(os.environ, CARGO_TARGET_DIR=str(target))
    done = subprocess.run(command, cwd=tree, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if done.returncode:
        return None, done.stderr
    messages = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    binary = next(m["executable"] for m in messages if m.get("executable") and m["profile"]["test"])
    return binary, ""


def run(tree, binary, args, limit, scripts=None):
    """Runs tests. Returns the name of the first failed test, 'hangs', 'fails' or None; the seconds; the number of tests."""
    env = dict(os.environ, RUST_BACKTRACE="0", PROPTEST_FAILURE_PERSISTENCE="off")
    env.pop("KEYLAPSE_SCRIPTS", None)
    if scripts:
        env["KEYLAPSE_SCRIPTS"] = str(scripts)
    begun = time.monotonic()
    tests = subprocess.Popen([binary, *args], cwd=tree, env=env, text=True, errors="replace", start_new_session=True,
                             stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)  # fmt: skip
    late = threading.Event()

    def stop():
        try:
            os.killpg(tests.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    timer = threading.Timer(limit, lambda: (late.set(), stop()))
    timer.start()
    verdict, count = None, 0
    for line in tests.stdout:
        count += line.startswith("test ")
        if match := re.match(r"test (\S+).* \.\.\. FAILED", line):
            verdict = match[1]
            break
    if verdict or late.is_set():
        stop()
    code = tests.wait()
    timer.cancel()
    stop()  # kills processes that the tests have left behind
    if not verdict and code:
        verdict = "hangs" if late.is_set() else "fails"
    return verdict, time.monotonic() - begun, count


class Judge:
    def __init__(self, name, target, args, folder=""):
        self.name, self.target, self.args, self.folder = name, target, args, folder
        self.binary, self.limit = None, None


def ready(judges, tree, target, jobs, keep=None):
    """Builds the judges and times them on the unchanged code. Prints a message for each judge that it leaves out."""
    able, built = [], {}
    for judge in (Judge(*judge) for judge in judges):
        key = " ".join(judge.target)
        if key not in built:
            built[key] = build(tree, target, judge.target)
            if keep and built[key][0]:  # another build must not replace the judge
                built[key] = shutil.copy(built[key][0], keep / key.replace(" ", "")), ""
        judge.binary, error = built[key]
        if not judge.binary:
            log(f"judge {judge.name} is left out: it does not compile: {first_error(error)}")
            continue
        # As many run in parallel as later, so that the time limits fit.
        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            runs = list(pool.map(lambda _: run(tree, judge.binary, judge.args, 900), range(jobs)))
        if verdicts := [verdict for verdict, _, _ in runs if verdict]:
            log(f"judge {judge.name} is left out: it fails on the unchanged code: {verdicts[0]}")
            continue
        if not runs[0][2]:
            log(f"judge {judge.name} is left out: no test matches its arguments")
            continue
        usual = max(seconds for _, seconds, _ in runs)
        judge.limit = TIMEOUT_EXTRA_S + TIMEOUT_FACTOR * usual
        log(f"judge {judge.name}: {runs[0][2]} tests, {usual:.1f}s, hangs after {judge.limit:.0f}s")
        able.append(judge)
    return able


def first_error(text):
    return next((line for line in text.splitlines() if line.startswith("error")), "no reason given")


def copy_tree(tree, into):
    """Copies the files that git does not ignore. Unchanged files of an earlier copy keep their times."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=tree,
                            check=True, stdout=subprocess.PIPE, text=True)  # fmt: skip
    for file in filter(None, listed.stdout.split("\0")):
        source, copy = tree / file, into / file
        if source.is_file() and not (copy.is_file() and copy.read_bytes() == source.read_bytes()):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy)


def judge_scripts(mutant, tree, judges, scripts):
    """Judges a changed script with the test binaries that are already built."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        changed = pathlib.Path(folder)
        for file in scripts:
            shutil.copy(file, changed)
        path = tree / mutant.file
        (changed / path.name).write_text(mutant.apply(path.read_text()))
        for judge in judges:
            verdict, _, _ = run(tree, judge.binary, judge.args, judge.limit, changed)
            if verdict:
                return judge.name, verdict
    return None


def judge_copy(mutant, copy, target, judges):
    """Judges a change in the copy. Builds each judge only if the judges before it have detected nothing."""
    path = copy / mutant.file
    text = path.read_text()
    path.write_text(mutant.apply(text))
    try:
        for judge in (judge for judge in judges if mutant.file.startswith(judge.folder)):
            binary, error = build(copy, target, judge.target)
            if not binary:
                return "compiler", first_error(error)
            verdict, _, _ = run(copy, binary, judge.args, judge.limit)
            if verdict:
                return judge.name, verdict
    finally:
        path.write_text(text)
    return None


# --- The report ---------------------------------------------------------------------------------

print_lock = threading.Lock()


def log(line):
    with print_lock:
        print(line, flush=True)


def read_expected(tree):
    """Reads mutants.expected. Each line has the key of a mutant, ` ;; `, and the reason why it may survive."""
    expected, path = {}, tree / EXPECTED
    for line in path.read_text().splitlines() if path.is_file() else []:
        if line.strip() and not line.startswith("#"):
            key, separator, reason = line.partition(" ;; ")
            if not separator or not reason.strip():
                sys.exit(f"{EXPECTED}: a line has no reason, write: key ;; reason: {line}")
            expected[key.strip()] = reason.strip()
    return expected


def summary(results):
    files = {}
    for mutant, outcome in results:
        counts = files.setdefault(mutant.file, [0, 0, 0, 0])
        counts[["caught", "expected", "not compiled", "SURVIVED"].index(outcome)] += 1
    log(f"{'file':<44}{'caught':>8}{'expected':>10}{'not compiled':>14}{'SURVIVED':>10}")
    files["all"] = [sum(column) for column in zip(*files.values())]
    for file, (caught, expected, broken, survived) in files.items():
        log(f"{file:<44}{caught:>8}{expected:>10}{broken:>14}{survived:>10}")


def options():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--seed", type=int, default=SEED, help="seed for the sample and its order (%(default)s)")
    parser.add_argument("--sample", type=int, help="number of mutants of each language; default: all of Lua, 60 of Rust")
    parser.add_argument("--only", choices=["lua", "rust"])
    parser.add_argument("--files", nargs="*", help="only files whose paths contain one of these texts")
    parser.add_argument("--survivors", type=pathlib.Path, metavar="JSONL",
                        help="only the survivors of an earlier run: a copy of its target/mutants.jsonl")  # fmt: skip
    parser.add_argument("--kinds", nargs="*", help="only these kinds, such as drop-call")
    parser.add_argument("--judges", nargs="*", help="only these judges")
    parser.add_argument("--jobs", type=int, default=1, help="number of scripts to judge in parallel (%(default)s)")
    parser.add_argument("--minutes", type=float, help="start no mutant after this time")
    parser.add_argument("--tree", type=pathlib.Path, default=pathlib.Path(__file__).parent.parent,
                        help="checkout to change, such as that of an earlier commit")  # fmt: skip
    parser.add_argument("--list", action="store_true", help="only print the mutants")
    return parser.parse_args()


def main():
    args = options()
    tree = args.tree.resolve()
    found = all_mutants(tree, args.only, args.files)
    found = [mutant for mutant in found if not args.kinds or mutant.kind in args.kinds]
    if args.survivors:
        earlier = [json.loads(line) for line in args.survivors.read_text().splitlines()]
        survivors = {entry["change"] for entry in earlier if entry["outcome"] == "SURVIVED"}
        found = [mutant for mutant in found if mutant.key in survivors]
    lua = [mutant for mutant in found if mutant.file.endswith(".lua")]
    rust = [mutant for mutant in found if mutant.file.endswith(".rs")]
    chosen = []
    for mutants, usual in ((lua, len(lua)), (rust, 60)):
        count = min(len(mutants), usual if args.sample is None else args.sample)
        chosen.append(random.Random(args.seed).sample(mutants, count))
    if args.list:
        for mutant in chosen[0] + chosen[1]:
            print(f"{mutant.id:<52} {mutant.key}")
        return
    log(f"seed {args.seed}: {len(chosen[0])} of {len(lua)} mutants of Lua, {len(chosen[1])} of {len(rust)} of Rust")

    work = tree / "target/mutants"
    work.mkdir(parents=True, exist_ok=True)
    expected = read_expected(tree)
    results, record = [], (tree / "target/mutants.jsonl").open("w")
    end = time.monotonic() + args.minutes * 60 if args.minutes else float("inf")

    def report(mutant, verdict, seconds):
        outcome = "SURVIVED" if not verdict else "not compiled" if verdict[0] == "compiler" else "caught"
        if outcome == "SURVIVED" and mutant.key in expected:
            outcome = "expected"
        by = f" by {verdict[0]}: {verdict[1]}" if verdict else f": {expected.get(mutant.key, '')}".rstrip(": ")
        log(f"{outcome:<9}{seconds:6.1f}s  {mutant.id}  {mutant.key.split(': ', 1)[1]}  {outcome}{by}")
        entry = {"id": mutant.id, "file": mutant.file, "line": mutant.line, "column": mutant.column,
                 "kind": mutant.kind, "change": mutant.key, "outcome": outcome, "judge": verdict and verdict[0],
                 "test": verdict and verdict[1], "seconds": round(seconds, 1), "seed": args.seed}  # fmt: skip
        with print_lock:
            results.append((mutant, outcome))
            record.write(json.dumps(entry) + "\n")
            record.flush()

    def each(mutants, jobs, judge):
        waiting = queue.SimpleQueue()
        for mutant in mutants:
            waiting.put(mutant)

        def work_through():
            while time.monotonic() < end:
                try:
                    mutant = waiting.get_nowait()
                except queue.Empty:
                    return
                begun = time.monotonic()
                verdict = judge(mutant)
                report(mutant, verdict, time.monotonic() - begun)

        with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
            for done in [pool.submit(work_through) for _ in range(jobs)]:
                done.result()

    def wanted(judges):
        return [judge for judge in judges if not args.judges or judge[0] in args.judges]

    readable = any("KEYLAPSE_SCRIPTS" in path.read_text() for path in sources(tree))
    in_copy = chosen[1] if readable else chosen[0] + chosen[1]
    if readable and chosen[0]:
        judges = ready(wanted(LUA_JUDGES), tree, tree / "target", args.jobs, work) or sys.exit("no judge is left")
        scripts = sorted(tree.glob("crates/wire/src/scripts/*.lua"))
        each(chosen[0], args.jobs, lambda mutant: judge_scripts(mutant, tree, judges, scripts))
    if in_copy:
        # The copy shares the target folder, which already has the crates that do not depend on keylapse.
        copy, target = work / "tree", tree / "target"
        copy_tree(tree, copy)
        judges = ready(wanted(RUST_JUDGES), copy, target, 1) or sys.exit("no judge is left")
        each(in_copy, 1, lambda mutant: judge_copy(mutant, copy, target, judges))

    summary(results)
    log(f"seed {args.seed}; {len(results)} of {len(chosen[0]) + len(chosen[1])} tried; see target/mutants.jsonl")
    keys = {mutant.key for mutant in all_mutants(tree, None, None)}
    stale = [key for key in expected if key not in keys]
    for key in stale:
        log(f"{EXPECTED}: no mutant has this key any more, delete the line: {key}")
    if stale or any(outcome == "SURVIVED" for _, outcome in results):
        sys.exit(1)


if __name__ == "__main__":
    main()
