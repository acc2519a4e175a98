// The tree beside an entry: arrow keys or a click open it, and it is filled as it is opened.

const box = document.querySelector("[data-tree]");
if (box) start();

async function start() {
  const current = box.dataset.dn;
  const tree = document.createElement("ul");
  tree.setAttribute("role", "tree");
  tree.setAttribute("aria-label", "Entries");
  await fill(tree, "", "");
  // Down to the entry that is shown: each suffix of its name in turn.
  const path = [...document.querySelectorAll(".crumbs a")].map((a) => new URL(a.href).searchParams.get("dn")).filter(Boolean);
  if (current) path.push(current);
  for (const dn of path) {
    const item = [...tree.querySelectorAll("[role=treeitem]")].find((one) => same(one.dataset.dn, dn));
    if (!item) continue;
    if (same(dn, current)) item.setAttribute("aria-current", "page");
    if (item.hasAttribute("aria-expanded")) await open(item);
  }
  box.replaceChildren(tree);
  const first = tree.querySelector("[aria-current]") ?? tree.querySelector("[role=treeitem]");
  if (first) {
    first.tabIndex = 0;
    first.scrollIntoView({ block: "nearest" });
  }
  tree.addEventListener("click", (event) => {
    const item = event.target.closest("[role=treeitem], button");
    if (!item) return;
    if (item.tagName === "BUTTON") return more(item);
    const arrow = event.clientX - item.querySelector(".label").getBoundingClientRect().left < 28;
    if (arrow && item.hasAttribute("aria-expanded")) toggle(item);
    else go(item);
  });
  tree.addEventListener("keydown", keys);
  box.dataset.ready = "yes";
}

function same(one, two) {
  const plain = (dn) => (dn ?? "").toLowerCase().replace(/\s*,\s*/g, ",");
  return plain(one) === plain(two);
}

async function fill(list, dn, page) {
  const answer = await fetch(`/api/children?${new URLSearchParams({ dn, page })}`);
  if (!answer.ok) {
    const text = (await answer.json().catch(() => ({}))).error ?? "cannot be listed";
    const item = document.createElement("li");
    item.textContent = text;
    item.className = "soft";
    list.append(item);
    return;
  }
  const found = await answer.json();
  for (const child of found.children) {
    const item = document.createElement("li");
    item.setAttribute("role", "treeitem");
    item.tabIndex = -1;
    item.dataset.dn = child.dn;
    const label = document.createElement("span");
    label.className = "label";
    label.textContent = child.name;
    item.append(label);
    if (child.more) item.setAttribute("aria-expanded", "false");
    list.append(item);
  }
  if (found.page) {
    const item = document.createElement("li");
    item.setAttribute("role", "none");
    const button = document.createElement("button");
    button.className = "quiet";
    button.textContent = "More …";
    button.dataset.dn = dn;
    button.dataset.page = found.page;
    item.append(button);
    list.append(item);
  }
}

async function more(button) {
  const item = button.closest("li"), list = item.parentElement, count = list.childElementCount - 1;
  item.remove();
  await fill(list, button.dataset.dn, button.dataset.page);
  // The keyboard goes on with what has come.
  list.children[count]?.focus();
}

async function open(item) {
  if (!item.querySelector("[role=group]")) {
    const list = document.createElement("ul");
    list.setAttribute("role", "group");
    await fill(list, item.dataset.dn, "");
    if (!list.childElementCount) {
      item.removeAttribute("aria-expanded");
      return;
    }
    item.append(list);
  }
  item.querySelector("[role=group]").hidden = false;
  item.setAttribute("aria-expanded", "true");
}

function close(item) {
  item.querySelector("[role=group]").hidden = true;
  item.setAttribute("aria-expanded", "false");
}

function toggle(item) {
  return item.getAttribute("aria-expanded") === "true" ? close(item) : open(item);
}

function go(item) {
  location.href = `/browse?${new URLSearchParams({ dn: item.dataset.dn })}`;
}

function visible(tree) {
  return [...tree.querySelectorAll("[role=treeitem]")].filter((item) => !item.parentElement.closest("[hidden]"));
}

async function keys(event) {
  // "More …" is within an entry and none itself: its keys are a button's.
  if (event.target.closest("button")) return;
  const item = event.target.closest("[role=treeitem]");
  if (!item) return;
  const items = visible(event.currentTarget), at = items.indexOf(item);
  const expanded = item.getAttribute("aria-expanded");
  const actions = {
    ArrowDown: () => focus(items[at + 1]),
    ArrowUp: () => focus(items[at - 1]),
    Home: () => focus(items[0]),
    End: () => focus(items[items.length - 1]),
    ArrowRight: () => (expanded === "false" ? open(item) : focus(item.querySelector("[role=treeitem]"))),
    ArrowLeft: () => (expanded === "true" ? close(item) : focus(item.parentElement.closest("[role=treeitem]"))),
    Enter: () => go(item),
  };
  const action = actions[event.key];
  if (!action) return;
  event.preventDefault();
  await action();

  function focus(next) {
    if (!next) return;
    item.tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}
