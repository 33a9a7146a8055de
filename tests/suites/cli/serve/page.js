// Runs the script of the page at the address that is given, with a stand-in for the DOM, and prints what it shows of a table for each model.
(async () => {
  const base = process.argv[2], table = process.argv[3];
  const html = await (await fetch(base)).text();
  const script = html.slice(html.indexOf("<script>") + 8, html.indexOf("</script>")).replace('"use strict";', "").replace(/\nload\(\);\s*$/, "");
  class Element {
    children = []; style = {}; classList = { toggle() {} }; selectedIndex = 0; value = ""; valueAsNumber = 5; files = [];
    append(...all) { this.children.push(...all); }
    replaceChildren(...all) { this.children = all; }
    setAttribute() {}
    removeAttribute() {}
    addEventListener() {}
    focus() {}
    text() { return [this.textContent, ...this.children.map(child => child.text ? child.text() : child)].filter(text => text !== undefined && text !== "").join(" | "); }
  }
  const elements = {}, ask = fetch;
  globalThis.document = { getElementById: id => elements[id] ??= new Element(), createElement: () => new Element(), addEventListener() {} };
  globalThis.fetch = (address, options) => ask(base + address, options);
  const page = new Function(script + "; return { load, ask, models: () => models, choose: number => { at('models').selectedIndex = number; }, shown: () => at('answer').text() }")();
  await page.load();
  for (let number = 0; number < page.models().length; number++) {
    page.choose(number);
    await page.ask(table, "text/csv");
    console.log(page.models()[number].name + ": " + page.shown());
  }
})();
