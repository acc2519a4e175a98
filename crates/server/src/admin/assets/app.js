// Small comforts. Every page works without them.

for (const button of document.querySelectorAll("[data-copy]")) {
  button.addEventListener("click", async () => {
    const text = document.getElementById(button.dataset.copy)?.textContent ?? "";
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection()?.selectAllChildren(document.getElementById(button.dataset.copy));
    }
  });
}

// What went wrong is read out, and the keyboard goes on from there.
document.querySelector("[data-focus]")?.focus();

// "Add a value": one more field like the last one.
for (const button of document.querySelectorAll("[data-more]")) {
  button.hidden = false;
  // The empty field at the end is for browsers without scripts.
  const own = button.closest(".attribute").querySelectorAll(".value-row");
  if (own.length > 1) own[own.length - 1].remove();
  button.addEventListener("click", () => {
    const rows = button.closest(".attribute").querySelectorAll(".value-row");
    const last = rows[rows.length - 1];
    const copy = last.cloneNode(true);
    for (const field of copy.querySelectorAll("input, textarea")) {
      field.value = "";
      field.removeAttribute("id");
    }
    last.after(copy);
    copy.querySelector("input, textarea")?.focus();
  });
}

// A file becomes base64 in the field beside it.
for (const picker of document.querySelectorAll("[data-file]")) {
  picker.hidden = false;
  picker.addEventListener("change", async () => {
    const file = picker.files?.[0];
    if (!file) return;
    const bytes = new Uint8Array(await file.arrayBuffer());
    let text = "";
    for (let at = 0; at < bytes.length; at += 0x8000) {
      text += String.fromCharCode(...bytes.subarray(at, at + 0x8000));
    }
    const field = picker.closest(".value-row").querySelector("textarea");
    field.value = btoa(text);
  });
}

// The text of a file goes into a field.
for (const picker of document.querySelectorAll("[data-text-file]")) {
  picker.hidden = false;
  picker.addEventListener("change", async () => {
    const file = picker.files?.[0];
    if (!file) return;
    document.getElementById(picker.dataset.textFile).value = await file.text();
    const kind = /\.csv$/i.test(file.name) ? "csv" : "ldif";
    picker.form.querySelector(`input[name=format][value=${kind}]`)?.click();
  });
}

// Fields that follow others until they are written to: the full name from its parts.
for (const field of document.querySelectorAll("[data-from]")) {
  const parts = field.dataset.from.split(" ").map((id) => document.getElementById(id)).filter(Boolean);
  const own = field.value !== "";
  let free = !own;
  field.addEventListener("input", () => (free = field.value === ""));
  const make = () => {
    if (!free) return;
    const words = parts.map((part) => part.value.trim()).filter(Boolean);
    field.value = field.dataset.make === "login" ? login(words) : words.join(" ");
  };
  for (const part of parts) part.addEventListener("input", make);
}

function login(words) {
  const plain = words.map((word) => word.normalize("NFKD").replace(/[^a-zA-Z0-9]/g, "").toLowerCase());
  return plain.length > 1 ? plain[0].slice(0, 1) + plain[plain.length - 1] : (plain[0] ?? "");
}

// Typing into the field of a choice chooses it; choosing another empties the field.
for (const field of document.querySelectorAll("[data-chooses]")) {
  const own = document.getElementById(field.dataset.chooses);
  field.addEventListener("input", () => {
    if (field.value !== "") own.checked = true;
  });
  for (const other of field.form.querySelectorAll(`input[type=radio][name="${own.name}"]`)) {
    if (other !== own) other.addEventListener("change", () => (field.value = ""));
  }
}

// A filter is put together from a row of fields.
const builder = document.querySelector("[data-builder]");
if (builder) {
  const filter = document.getElementById("filter");
  const escape = (text) => text.replace(/[\\*()\0]/g, (c) => "\\" + c.charCodeAt(0).toString(16).padStart(2, "0"));
  const term = {
    is: (name, value) => `(${name}=${escape(value)})`,
    starts: (name, value) => `(${name}=${escape(value)}*)`,
    contains: (name, value) => `(${name}=*${escape(value)}*)`,
    present: (name) => `(${name}=*)`,
    absent: (name) => `(!(${name}=*))`,
    least: (name, value) => `(${name}>=${escape(value)})`,
    most: (name, value) => `(${name}<=${escape(value)})`,
  };
  builder.querySelector("[data-add-term]")?.addEventListener("click", (event) => {
    event.preventDefault();
    const field = (name) => builder.querySelector(`[name="${name}"]`);
    const next = term[field("op").value](field("attr").value.trim(), field("val").value);
    const typed = filter.value.trim();
    // A filter of one item may lack its parentheses.
    const old = typed === "" || typed.startsWith("(") ? typed : `(${typed})`;
    if (old === "" || old === "(objectClass=*)") filter.value = next;
    else if (/^\(&\(/.test(old)) filter.value = old.slice(0, -1) + next + ")";
    else filter.value = `(&${old}${next})`;
    field("val").value = "";
    filter.focus();
  });
}

// The newest lines of a log are at its end.
for (const lines of document.querySelectorAll("[data-end]")) lines.scrollTop = lines.scrollHeight;
