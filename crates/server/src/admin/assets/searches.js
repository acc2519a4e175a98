// Searches that a user keeps, in this browser alone: a name and the fields of the form, for each identity apart.

const KEPT_MAX = 30, NAME_MAX = 60, TEXT_MAX = 4000;
const FIELDS = ["base", "scope", "filter", "attributes", "sort", "order"];

const section = document.querySelector("[data-searches]");
if (section) start();

function start() {
  const key = `larix-searches:${section.dataset.searches.toLowerCase()}`;
  const list = section.querySelector("ul"), form = section.querySelector("form");
  const name = form.querySelector("input"), status = section.querySelector("[role=status]");
  const fields = document.querySelector("form[data-search]");
  section.hidden = false;
  show();

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    const title = name.value.trim().slice(0, NAME_MAX);
    if (title === "") {
      status.textContent = "The search needs a name.";
      name.focus();
      return;
    }
    const search = new URLSearchParams();
    for (const field of FIELDS) {
      const value = fields.elements[field]?.value.trim() ?? "";
      if (value !== "") search.set(field, value);
    }
    // What has no filter is no search yet: the form would come back empty.
    if (!search.has("filter")) search.set("filter", "(objectClass=*)");
    const text = search.toString();
    const others = read().filter((one) => one.name !== title);
    if (text.length > TEXT_MAX) status.textContent = `This search is too long to be kept: ${TEXT_MAX} characters at most.`;
    else if (others.length >= KEPT_MAX) status.textContent = `${KEPT_MAX} searches are kept: remove one first.`;
    else if (write([...others, { name: title, search: text }])) {
      status.textContent = `"${title}" is kept in this browser.`;
      name.value = "";
    }
    show();
  });

  // What else is in the storage under this name is left out, whoever wrote it.
  function read() {
    try {
      const kept = JSON.parse(localStorage.getItem(key) ?? "[]");
      const sound = (one) => typeof one?.name === "string" && typeof one.search === "string" && one.search.length <= TEXT_MAX;
      return Array.isArray(kept) ? kept.filter(sound).slice(0, KEPT_MAX) : [];
    } catch {
      return [];
    }
  }

  function write(kept) {
    try {
      localStorage.setItem(key, JSON.stringify(kept));
      return true;
    } catch {
      status.textContent = "This browser keeps nothing for this page: allow it to store data, or make a bookmark.";
      return false;
    }
  }

  function show() {
    const kept = read().sort((one, two) => one.name.localeCompare(two.name));
    list.replaceChildren(...kept.map(item));
  }

  function item(one) {
    const made = document.createElement("li");
    const link = document.createElement("a");
    link.href = `/search?${new URLSearchParams(one.search)}`;
    link.textContent = one.name;
    const remove = document.createElement("button");
    remove.type = "button";
    remove.className = "quiet";
    remove.textContent = "×";
    remove.setAttribute("aria-label", `Remove ${one.name}`);
    remove.addEventListener("click", () => {
      write(read().filter((other) => other.name !== one.name));
      show();
      status.textContent = `"${one.name}" is removed.`;
      (list.querySelector("button") ?? name).focus();
    });
    made.append(link, remove);
    return made;
  }
}
