"""Makes .venv: the project and what it needs, at the versions of constraints.txt. Standard library only.

`check KIND` exits 0 when .venv is complete; `make KIND` completes it. KIND is `runtime` or `dev` (which holds the
runtime too). `.venv/.ledger-stamp` says what is in there: `unfinished` from the first moment on, and last of all KIND,
a hash of what it was made from, and the path of the checkout. So a run that was killed half-way is made again from
nothing, and so is a .venv that was moved (its scripts hold the old path). A working .venv that another tool made is
installed into; one that does not work is left for its owner.
"""

from __future__ import annotations

import base64
import configparser
import contextlib
import fcntl
import hashlib
import html.parser
import json
import os
import re
import shutil
import ssl
import subprocess
import sys
import urllib.error
import urllib.parse
import urllib.request
import venv
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
STAMP = VENV / ".ledger-stamp"
LOG = VENV / "install.log"
UNFINISHED = "unfinished"
BUILD = ("hatchling", "editables")  # what builds the project; installed first, so that it is pinned too
INDEX = "https://pypi.org/simple"
JSON = "application/vnd.pypi.simple.v1+json"
SECONDS = 60.0


class BootstrapError(Exception):
    """One line for a person: what failed, and what to do."""


def say(line: str) -> None:
    print(f"ledger: {line}", file=sys.stderr, flush=True)


# --- the stamp ---------------------------------------------------------------------------------------------------


def wanted() -> str:
    """A hash of what .venv is made from: a change of any of it calls for an install."""
    made_of = [(ROOT / name).read_text(encoding="utf-8") for name in ("pyproject.toml", "constraints.txt")]
    return hashlib.sha256("\0".join([sys.version, *made_of]).encode()).hexdigest()


def read_stamp() -> tuple[str, str, str]:
    """KIND, hash and checkout; empty words where the stamp does not say."""
    try:
        kind, _, rest = STAMP.read_text(encoding="utf-8").rstrip("\n").partition(" ")
    except OSError:
        return "", "", ""
    digest, _, checkout = rest.partition(" ")
    return kind, digest, checkout


def complete(kind: str) -> bool:
    """Whether .venv holds KIND of this checkout. True only in the .venv's own Python."""
    made, digest, checkout = read_stamp()
    return made in (kind, "dev") and digest == wanted() and checkout == str(ROOT)


# --- making it ---------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def locked() -> Iterator[int]:
    """One install at a time. The lock is a process's: pip inherits it, and keeps it if this process is killed."""
    with (ROOT / ".venv.lock").open("w", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another install of this checkout is running; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield file.fileno()


def make(kind: str) -> None:
    with locked() as lock:
        python = VENV / "bin" / "python"
        if usable(python):
            if run([python, "-I", "-B", __file__, "check", kind], lock).returncode == 0:
                return  # another process made it while we waited
            kind = "dev" if read_stamp()[0] == "dev" else kind
            say("bringing .venv up to date …")
            STAMP.write_text(UNFINISHED, encoding="utf-8")
        else:
            say("making .venv, once; about half a minute …")
            make_venv(python, lock)
        extra = "[dev]" if kind == "dev" else ""
        pip: list[str | Path] = [python, "-I", "-m", "pip"]
        options = ["install", "--no-input", "--disable-pip-version-check", "--no-warn-script-location"]
        pinned: list[str | Path] = ["--constraint", ROOT / "constraints.txt"]
        logged([*pip, *options, *pinned, *BUILD], lock)
        logged([*pip, *options, *pinned, "--no-build-isolation", "--editable", f"{ROOT}{extra}"], lock)
        digest = subprocess.run(
            [python, "-I", "-B", __file__, "wanted"], check=True, capture_output=True, text=True
        ).stdout.strip()
        STAMP.write_text(f"{kind} {digest} {ROOT}\n", encoding="utf-8")


def usable(python: Path) -> bool:
    """Whether .venv was once complete here, or is another tool's, and has a Python that will do; else: made anew."""
    kind, _, checkout = read_stamp()
    if STAMP.exists() and (kind not in ("runtime", "dev") or checkout != str(ROOT)):
        return False
    newer = "import sys, pip; sys.exit(sys.version_info < (3, 11))"
    return python.exists() and run([python, "-I", "-c", newer]).returncode == 0


def make_venv(python: Path, lock: int) -> None:
    """An empty environment with pip, in place of whatever half of one is there."""
    if VENV.is_symlink() or (VENV.exists() and any(VENV.iterdir()) and not STAMP.exists()):
        raise BootstrapError(f"{VENV} was made by another tool and has no Python 3.11+ with pip; move it away")
    if VENV.exists():
        STAMP.write_text(UNFINISHED, encoding="utf-8")  # a kill in the middle of the next lines leaves it ours
        for path in VENV.iterdir():
            if path == STAMP:
                continue
            shutil.rmtree(path) if path.is_dir() and not path.is_symlink() else path.unlink()
    VENV.mkdir(exist_ok=True)
    STAMP.write_text(UNFINISHED, encoding="utf-8")
    base = getattr(sys, "_base_executable", None) or sys.executable
    if run([base, "-I", "-m", "venv", VENV], lock).returncode != 0:
        # Debian keeps ensurepip in a package of its own (python3-venv): go without, and fetch pip.
        try:
            venv.create(VENV, with_pip=False, symlinks=True)
        except (OSError, subprocess.CalledProcessError) as error:
            raise BootstrapError(f"cannot make {VENV}: {error}") from None
        wheel = fetch_pip(VENV / "pip-wheel")
        logged([python, "-I", wheel / "pip", "install", "--no-index", "--no-deps", "--no-input", wheel], lock)
        shutil.rmtree(wheel.parent)


def run(command: list[str | Path], lock: int | None = None) -> subprocess.CompletedProcess[bytes]:
    return subprocess.run(
        [str(word) for word in command],
        check=False,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=() if lock is None else (lock,),
    )


def logged(command: list[str | Path], lock: int) -> None:
    """Runs pip quietly; what it said is shown only if it fails."""
    # Settings that would put packages elsewhere than in .venv; everything else of pip's configuration is honoured.
    elsewhere = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_PYTHON", "PIP_DRY_RUN")
    env = {name: value for name, value in os.environ.items() if name not in elsewhere}
    env["PIP_USER"] = "0"
    with LOG.open("wb") as log:
        done = subprocess.run(
            [str(word) for word in command],
            check=False,
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            pass_fds=(lock,),
            env=env,
        )
    if done.returncode != 0:
        sys.stderr.write(LOG.read_text(encoding="utf-8", errors="replace"))
        raise BootstrapError(
            "pip could not install what is needed (its words are above): check the network and the package index "
            "(PIP_INDEX_URL, PIP_CERT, https_proxy), then run this again"
        )


# --- pip, where the machine has none -----------------------------------------------------------------------------


def fetch_pip(folder: Path) -> Path:
    """The wheel of the pip that constraints.txt names, from the package index, its hash checked."""
    pin = re.search(r"^pip==(\S+)", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.MULTILINE)
    if pin is None:
        raise BootstrapError("constraints.txt names no pip; add a line pip==VERSION")
    name = f"pip-{pin[1]}-py3-none-any.whl"
    index = os.environ.get("PIP_INDEX_URL") or pip_config("index-url") or INDEX
    page = index.rstrip("/") + "/pip/"
    body, content_type, final = get(page, f"{JSON}, text/html;q=0.5")
    files = from_json(body) if "json" in content_type else from_html(body.decode("utf-8", "replace"))
    if name not in files:
        raise BootstrapError(f"{shown(page)} has no {name}; name another index with PIP_INDEX_URL")
    link, sha256 = files[name]
    wheel, _, _ = get(urllib.parse.urljoin(final, link), "*/*", index)
    if not sha256 or hashlib.sha256(wheel).hexdigest() != sha256:
        raise BootstrapError(f"{name} from {shown(page)} is not what the index says (sha256); nothing was installed")
    folder.mkdir()
    path = folder / name
    path.write_bytes(wheel)
    return path


def from_json(body: bytes) -> dict[str, tuple[str, str]]:
    """File name → URL and sha256, of the JSON form of an index page (PEP 691)."""
    files = json.loads(body)["files"]
    return {file["filename"]: (file["url"], file["hashes"].get("sha256", "")) for file in files}


def from_html(body: str) -> dict[str, tuple[str, str]]:
    """The same of the HTML form (PEP 503), for a mirror that has no other."""
    files: dict[str, tuple[str, str]] = {}

    class Links(html.parser.HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            href = dict(attrs).get("href") if tag == "a" else None
            if href:
                url, _, fragment = href.partition("#")
                sha256 = urllib.parse.parse_qs(fragment).get("sha256", [""])[0]
                files[urllib.parse.unquote(Path(urllib.parse.urlsplit(url).path).name)] = (url, sha256)

    Links().feed(body)
    return files


def get(url: str, accept: str, credentials_of: str | None = None) -> tuple[bytes, str, str]:
    """Body, content type and final URL. Credentials in the index's URL go to the index's own host only."""
    parts = urllib.parse.urlsplit(url)
    owner = urllib.parse.urlsplit(credentials_of or url)
    headers = {"Accept": accept, "User-Agent": "ledger-bootstrap"}
    bare = parts._replace(netloc=parts.netloc.rpartition("@")[2])
    if owner.username and bare.netloc == owner.netloc.rpartition("@")[2]:
        secret = f"{urllib.parse.unquote(owner.username)}:{urllib.parse.unquote(owner.password or '')}"
        headers["Authorization"] = "Basic " + base64.b64encode(secret.encode()).decode()
    ca = next(filter(None, [*map(os.environ.get, ("PIP_CERT", "REQUESTS_CA_BUNDLE")), pip_config("cert")]), None)
    request = urllib.request.Request(bare.geturl(), headers=headers)
    try:
        # Without `ca` OpenSSL's own default holds, SSL_CERT_FILE included.
        tls = ssl.create_default_context(cafile=ca)
        with urllib.request.urlopen(request, timeout=SECONDS, context=tls) as answer:
            return answer.read(), answer.headers.get("Content-Type", ""), answer.url
    except (OSError, ValueError) as error:
        if isinstance(error, urllib.error.HTTPError):
            error.close()
        reason = getattr(error, "reason", None) or error
        raise BootstrapError(
            f"no pip on this machine, and {shown(url)} did not give one ({reason}): "
            "check the network (PIP_INDEX_URL, PIP_CERT, https_proxy), or apt install python3-venv"
        ) from None


def shown(url: str) -> str:
    """A URL without its credentials."""
    parts = urllib.parse.urlsplit(url)
    return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()


def pip_config(option: str) -> str | None:
    """`option` as pip would find it in its configuration files; the later file wins, as there."""
    home = Path(os.environ.get("HOME") or "/")
    system = [Path(folder) / "pip" for folder in os.environ.get("XDG_CONFIG_DIRS", "/etc/xdg").split(":") if folder]
    user = Path(os.environ.get("XDG_CONFIG_HOME") or home / ".config") / "pip"
    files = [*(folder / "pip.conf" for folder in system), Path("/etc/pip.conf"), home / ".pip" / "pip.conf"]
    files += [user / "pip.conf", *map(Path, filter(None, [os.environ.get("PIP_CONFIG_FILE")]))]
    found = None
    for file in files:
        config = configparser.RawConfigParser()
        with contextlib.suppress(OSError, configparser.Error, UnicodeDecodeError):
            config.read(file, encoding="utf-8")
            found = config.get("install", option, fallback=config.get("global", option, fallback=found))
    return found


# --- the command -------------------------------------------------------------------------------------------------


def main(arguments: list[str]) -> int:
    match arguments:
        case ["wanted"]:
            print(wanted())
        case ["check", ("runtime" | "dev") as kind]:
            return 0 if complete(kind) else 1
        case ["make", ("runtime" | "dev") as kind]:
            make(kind)
        case _:
            raise BootstrapError("usage: bootstrap.py check|make runtime|dev")
    return 0


def fail(line: str, status: int) -> NoReturn:
    say(line)
    sys.exit(status)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except BootstrapError as error:
        fail(str(error), 1)
    except OSError as error:
        fail(f"cannot make {VENV}: {error}", 1)
    except KeyboardInterrupt:
        fail("stopped; run it again to go on", 130)
