"""Which script of a scale request is run, and with which variables.  Pure.

A script is a file that the launcher has.  A request names it and gives it values; it must not bring code along, because
who may create requests need not be the one who may run commands in the launcher.  So a script is no file that shows
the request's own words, such as `/proc/self/environ`, and no variable has a value that a program is known to run: such
a list is never complete.  `PATH` and `PYTHONPATH` only choose among the launcher's files, as the script's path does.
"""

import re

VIRTUAL = frozenset({"proc", "dev", "sys"})
"""Folders whose files show what processes were given."""

NAME = re.compile(r"[._a-zA-Z][-._a-zA-Z0-9]*")
"""As of the variables of a pod."""

LINES = re.compile(r"[\n\r]")

INTERPRETED = re.compile(
    r"(LD|BASH|DYLD|GIT|LESS)_.*|ENV|IFS|PS[0-9]|SHELLOPTS|BASHOPTS|PROMPT_COMMAND|GCONV_PATH|GLIBC_TUNABLES"
    r"|PERL5(OPT|DB)|RUBYOPT|NODE_OPTIONS|(JAVA_TOOL|_JAVA|JDK_JAVA)_OPTIONS"
    r"|PYTHON(STARTUP|WARNINGS|BREAKPOINT|INSPECT)|BROWSER|EDITOR|VISUAL|(MAN)?PAGER|LESSOPEN|LESSCLOSE"
    r"|(OMPI|PMIX|PRTE|HYDRA|I_MPI|SLURM)_.*|TAR_OPTIONS|MAKEFLAGS|MFLAGS|RSYNC_.*|SSH_.*|SHELL|R_(PROFILE|ENVIRON).*"
)
"""Variables whose values the loader, a shell or another interpreter runs or takes for options."""


def problem_of_path(script: str) -> str:
    """Why this is no script; empty if it is one.  A relative path is one in the launcher's working folder."""
    steps = [step for step in script.split("/") if step not in ("", ".")]
    if script.startswith("-"):
        return "give the path of a script: the shell would take this for an option"
    if ".." in steps or LINES.search(script):
        return "give the path of a script without `..` and on one line"
    if steps and steps[0] in VIRTUAL:
        return f"give the path of a file in the launcher: /{steps[0]} has none"
    return ""


def problem_of_name(name: str) -> str:
    """Why a script gets no variable of this name; empty if it does."""
    if not NAME.fullmatch(name):
        return "give the variable a name of letters, digits, dots, hyphens and underscores"
    if INTERPRETED.fullmatch(name):
        return f"set {name} in the script or in the launcher: a program runs its value"
    return ""


def problem_of_value(value: str) -> str:
    """Why a script gets no such value; empty if it does."""
    return "leave out null characters and line breaks" if "\0" in value or LINES.search(value) else ""
