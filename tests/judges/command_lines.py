"""Tries the command lines of a document as far as possible without changing anything. docs.py calls this.

The exporter itself runs with --dry-run. Its commands and those of trtllm-doctor run with --help, so that each flag and value is
parsed. For command lines of other programs, bash checks the syntax. If they name programs, steps (of .ci/full) or files of this repository, these must exist. A
section with measured figures must name the program that measures them.
"""
import glob
import os
import re
import shlex
import subprocess

FENCE = re.compile(r"(?ms)^( *)```([\w+]*)\n(.*?)^ *```$")
INLINE = re.compile(r"`((?:trtllm-exporter|trtllm-doctor|\.ci/full|cargo bench|cargo test --package [\w-]+ \w+|benches/\S+\.(?:py|sh)|tests/\S+\.(?:py|sh)) [^`]+)`")
# Errors about files that exist only on the machine of a reader who follows the document.
MISSING = re.compile(r"No such file|cannot read the (file|certificates)|Permission denied")
MEASURED = re.compile(r"(?i)\bmeasured\b")
FIGURE = re.compile(r"\d ?(ms|µs|ns|KB|MB|MiB|GB|GiB|×|%|bytes per)(?!\w)")
BENCHMARK = re.compile(r"\.ci/full [\w-]+|cargo bench|cargo test --package [\w-]+ \w+|benches/[\w.-]+|cpp-bridge/benches/[\w.-]+|tests/[\w./-]+")
OURS = ("tests/", ".ci/", "benches/", "deploy/", "cpp-bridge/", "examples/")


def shell_blocks(text):
    """The lines of each block of shell commands, without the output of programs."""
    for indent, language, block in FENCE.findall(text):
        lines = [line.removeprefix(indent) for line in block.splitlines()]
        if language == "console":
            yield "\n".join(line[2:] for line in lines if line.startswith("$ "))
        elif language == "sh":
            yield "\n".join(lines)
        else:
            yield "\n".join(line.removeprefix("$ ") for line in lines if re.match(r"\$ |trtllm-(exporter|doctor) ", line))


def commands_of(text):
    for block in shell_blocks(text):
        for line in block.replace("\\\n", " ").splitlines():
            for part in re.split(r"&&|\|\||[;|]| & ?$", line):
                yield part.strip()
    for inline in INLINE.findall(FENCE.sub("", text)):
        yield inline


def words_of(command):
    try:
        words = shlex.split(command, comments=True)
    except ValueError:
        return []
    while words and re.match(r"[A-Z_]+=", words[0]):
        del words[0]
    return words


def own_finding(program, words, binary):
    """Runs one of our two programs with these arguments and returns its error. Both are in the folder of `binary`, the exporter."""
    own = program == "trtllm-exporter" and not words or bool(words) and (words[0].startswith("-") or words[0] == "help")
    starts = own and not {"help", "--help", "--version", "--dry-run"} & set(words)
    arguments = ["--dry-run", *words] if starts else words if own else [*words, "--help"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TRTLLM_EXPORTER_")}
    path = os.path.join(os.path.dirname(binary), program)
    # `help COMMAND` refuses an unknown command in each of the two programs.
    for arguments in [arguments] if own else [["help", words[0]], arguments]:
        tried = subprocess.run([path, *arguments], capture_output=True, text=True, env=environment, timeout=60)
        if tried.returncode:
            break
    lines = tried.stderr.strip().removeprefix(f"{program}: ").splitlines()
    wrong = [line for line in lines if not MISSING.search(line)]
    return "; ".join(wrong) if tried.returncode and wrong else None


def repository_finding(words):
    if words[0] == ".ci/full":
        step = words[1] if len(words) > 1 else None
        return f"no step {step}" if step and not os.path.exists(f".ci/steps/{step}") else None
    if words[:2] == ["cargo", "bench"]:
        names = [words[at + 1] for at, word in enumerate(words) if word == "--bench" and at + 1 < len(words)]
        missing = [name for name in names if not glob.glob(f"**/benches/{name}.rs", recursive=True)]
        return f"no benchmark {', '.join(missing)}" if missing else None
    program = words[1] if words[0] in ("python3", "bash", "sh") and len(words) > 1 else words[0]
    ours = program.startswith(OURS) and not re.search(r"[$*{]", program)
    return f"{program} does not exist" if ours and not os.path.exists(program) else None


def command_findings(path, text, binary):
    for block in shell_blocks(text):
        checked = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
        if checked.returncode:
            yield f"{path}: bash: {checked.stderr.strip()} in:\n{block}"
    for command in commands_of(text):
        words = words_of(command)
        if not words:
            continue
        if words[0] in ("trtllm-exporter", "trtllm-doctor"):
            finding = own_finding(words[0], words[1:], binary) if binary else None
        elif words[:2] == ["cargo", "run"] and "--" in words:
            program = "trtllm-doctor" if "trtllm-doctor" in words else "trtllm-exporter"
            finding = own_finding(program, words[words.index("--") + 1:], binary) if binary else None
        else:
            finding = repository_finding(words)
        if finding:
            yield f"{path}: {command}: {finding}"


def figure_findings(path, text):
    """Finds sections with measured figures but without a named benchmark. A benchmark that is named in the parent
    section, or before the first section, is enough."""
    named = [bool(BENCHMARK.search(re.split(r"(?m)^## ", text)[0]))]
    for hashes, title, body in re.findall(r"(?ms)^(##+) (.+?)$(.*?)(?=^##+ |\Z)", FENCE.sub("", text)):
        depth = len(hashes) - 1
        del named[depth:]
        named.append(any(named) or bool(BENCHMARK.search(body)))
        if MEASURED.search(body) and FIGURE.search(body) and not named[-1]:
            yield f"{path}: section \"{title}\" has measured figures and names no benchmark"
