"""Makes a picture of what a command prints on a terminal, as docs/terminal.png.

    pip install pyte          and Chromium
    python scripts/terminal_picture.py docs/terminal.png --columns 92 --rows 24 -- runner train configs/digits_cnn.toml
"""

import argparse
import fcntl
import html
import os
import pathlib
import pty
import struct
import subprocess
import tempfile
import termios

import pyte

COLOURS = {
    "black": "#3b4252", "red": "#e06c75", "green": "#98c379", "brown": "#e5c07b", "blue": "#61afef",
    "magenta": "#c678dd", "cyan": "#56b6c2", "white": "#dcdfe4", "default": "#dcdfe4",
    "brightblack": "#7f848e", "brightred": "#ff7b86", "brightgreen": "#b5e890", "brightbrown": "#ffd580",
    "brightblue": "#7cc4ff", "brightmagenta": "#d99bf0", "brightcyan": "#7fd6df", "brightwhite": "#ffffff",
}  # fmt: skip
STYLE = "margin:0;padding:14px 18px;background:#21252b;color:#dcdfe4;font:14px/19px 'DejaVu Sans Mono',monospace;display:inline-block"


def screen(command, columns, rows):
    """The screen when the command has ended."""
    process, terminal = pty.fork()
    if process == 0:
        os.environ.update(TERM="xterm-256color", COLUMNS=str(columns), LINES=str(rows))
        os.execvp(command[0], command)
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    shown = pyte.Screen(columns, rows)
    stream = pyte.ByteStream(shown)
    while True:
        try:
            some = os.read(terminal, 65536)
        except OSError:
            break
        if not some:
            break
        stream.feed(some)
    os.waitpid(process, 0)
    return shown


def page(shown, command):
    """Its lines as HTML, with the command above."""
    lines = [f'<span style="color:#98c379">$</span> {html.escape(" ".join(command))}']
    last = max((y for y in range(shown.lines) if shown.display[y].strip()), default=0)
    for y in range(last + 1):
        line = ""
        for x in range(len(shown.display[y].rstrip())):
            cell = shown.buffer[y][x]
            colour = COLOURS.get(cell.fg, f"#{cell.fg}")
            weight = "bold" if cell.bold else "normal"
            line += f'<span style="color:{colour};font-weight:{weight}">{html.escape(cell.data)}</span>'
        lines.append(line)
    return f'<!doctype html><meta charset="utf-8"><body style="margin:0;background:#21252b"><pre style="{STYLE}">' + "\n".join(lines) + "</pre>", len(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out")
    parser.add_argument("--columns", type=int, default=92)
    parser.add_argument("--rows", type=int, default=40)
    parser.add_argument("--shown", help="what stands behind the prompt, if not the command")
    parser.add_argument("command", nargs="+")
    args = parser.parse_args()
    shown = screen(args.command, args.columns, args.rows)
    text, lines = page(shown, args.shown.split() if args.shown else args.command)
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "page.html"
        file.write_text(text)
        size = f"{args.columns * 17 // 2 + 40},{lines * 19 + 28}"
        options = ["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--window-size={size}"]
        options += ["--disable-background-networking", f"--user-data-dir={folder}/profile", f"--screenshot={os.path.abspath(args.out)}"]
        subprocess.run(["chromium", *options, f"file://{file}"], check=True, stderr=subprocess.DEVNULL)


main()
