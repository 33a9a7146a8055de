"""Uses the page of a server as a person does, in headless Chromium: light and dark, 400 and 1,400 pixels wide, with a dropped photo or a text and Ctrl+Enter.

    pip install playwright
    runner serve digits=runs/digits_cnn/1 prices=runs/prices/1 gpt=runs/gpt/1
    python scripts/serve_page.py http://127.0.0.1:8000 --photo digits=7.png --text prices=$'rooms,age\\n3,20' --text gpt=ROMEO: --pictures shots

Every model of the server has a photo or a text. It ends with 1 where something is wider than the page, where the console has a message, or where a model does
not answer.
"""

import argparse
import base64
import pathlib
import shutil
import sys

from playwright.sync_api import sync_playwright

DROP = """async content => {
    const bytes = Uint8Array.from(atob(content), c => c.charCodeAt(0)), data = new DataTransfer();
    data.items.add(new File([bytes], "photo.png", { type: "image/png" }));
    for (const kind of ["dragover", "drop"])
        document.body.dispatchEvent(new DragEvent(kind, { dataTransfer: data, bubbles: true, cancelable: true }));
}"""
ANSWERED = """() => {
    const answer = document.getElementById("answer");
    return !answer.hasAttribute("aria-busy") && !answer.innerText.startsWith("The answer will be here");
}"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("address")
    parser.add_argument("--photo", action="append", default=[], metavar="MODEL=FILE")
    parser.add_argument("--text", action="append", default=[], metavar="MODEL=TEXT")
    parser.add_argument("--pictures", type=pathlib.Path, help="a folder for a picture of each answer")
    parser.add_argument("--chromium", default=shutil.which("chromium") or shutil.which("google-chrome"))
    args = parser.parse_args()
    photos = dict(one.split("=", 1) for one in args.photo)
    texts = dict(one.split("=", 1) for one in args.text)
    if args.pictures:
        args.pictures.mkdir(parents=True, exist_ok=True)
    faults = []
    with sync_playwright() as play:
        browser = play.chromium.launch(executable_path=args.chromium, args=["--no-sandbox"])
        for scheme in ("light", "dark"):
            for width in (400, 1400):
                page = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme).new_page()
                where = f"{scheme}, {width} wide"
                page.on("console", lambda message, where=where: faults.append(f"{where}: the console has `{message.text}`"))
                page.on("pageerror", lambda error, where=where: faults.append(f"{where}: {error}"))
                page.goto(args.address)
                page.wait_for_selector("#models option", state="attached")
                for model in [option.inner_text() for option in page.query_selector_all("#models option")]:
                    if model not in photos and model not in texts:
                        faults.append(f"{model} has neither --photo nor --text")
                        continue
                    page.select_option("#models", label=model)
                    if model in photos:
                        page.evaluate(DROP, base64.b64encode(pathlib.Path(photos[model]).read_bytes()).decode())
                    else:
                        page.fill("#rows", texts[model])
                        page.focus("#rows")
                        page.keyboard.press("Control+Enter")
                    page.wait_for_function(ANSWERED, timeout=60_000)
                    if page.query_selector("#answer .wrong") or "[object" in page.inner_text("#answer"):
                        faults.append(f"{where}: {model} answers {page.inner_text('#answer')!r}")
                    if page.evaluate("document.documentElement.scrollWidth > innerWidth"):
                        faults.append(f"{where}: the answer of {model} is wider than the page")
                    if args.pictures:
                        page.screenshot(path=args.pictures / f"{model}-{scheme}-{width}.png", full_page=True)
                page.context.close()
        browser.close()
    print("\n".join(sorted(set(faults))) or "every model answers on every page")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
