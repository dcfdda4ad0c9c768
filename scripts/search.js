// Prints, as JSON, the pages that the search of a built site shows for each query, best first:
//     node scripts/search.js build/docs/html QUERY ...
// It runs the site's own scripts, with the parts of a browser that they need.
const fs = require("fs");
const path = require("path");
const vm = require("vm");

const [site, ...queries] = process.argv.slice(2);
const ready = { addEventListener() {}, getElementById: () => null };
const scope = vm.createContext({ document: ready, addEventListener() {}, console, URLSearchParams });
vm.runInContext("var window = globalThis, DOCUMENTATION_OPTIONS = {}, SPHINX_HIGHLIGHT_ENABLED = false; function _ready() {} var _ = (text) => text;", scope);
for (const name of ["language_data.js", "searchtools.js"])
  vm.runInContext(fs.readFileSync(path.join(site, "_static", name), "utf8"), scope);
scope.index = fs.readFileSync(path.join(site, "searchindex.js"), "utf8");
vm.runInContext("var loaded; Search.setIndex = (index) => { Search._index = index; }; eval(index)", scope);
const shown = {};
for (const query of queries) {
  scope.query = query;
  // The results are sorted with the best one last.
  const results = vm.runInContext("Search._performSearch(...Search._parseQuery(query))", scope);
  shown[query] = results.reverse().map((result) => result[0]);
}
console.log(JSON.stringify(shown));
