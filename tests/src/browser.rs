//! A headless Chromium, driven over a pipe by the DevTools protocol: no driver, no port.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use larix_testkit::packages;
use serde_json::{Value, json};

/// Messages on the pipe end with this byte.
const END: u8 = 0;

/// One browser with one page; it ends with this value.
#[derive(Debug)]
pub struct Browser {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
    session: String,
    last_id: u64,
    /// Came while something else was waited for.
    events: Vec<Value>,
    /// What scripts and the console complained of.
    pub complaints: Vec<String>,
    _profile: tempfile::TempDir,
}

impl Browser {
    /// `None` where no browser is installed.
    pub fn start() -> Option<Self> {
        if packages::CHROMIUM.is_lacking() {
            return None;
        }
        let program = packages::CHROMIUM.files().into_iter().next()?;
        let profile = tempfile::tempdir().expect("a temporary folder");
        // The browser reads from descriptor 3 and writes to 4.
        let mut child = Command::new("sh")
            .args(["-c", "exec \"$@\" 3<&0 4>&1 </dev/null >/dev/null 2>/dev/null", "sh"])
            .arg(program)
            .args(["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"])
            .args(["--remote-debugging-pipe", "--force-device-scale-factor=1", "--hide-scrollbars"])
            .arg(format!("--user-data-dir={}", profile.path().display()))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("a shell");
        let input = child.stdin.take().expect("a pipe");
        let output = BufReader::new(child.stdout.take().expect("a pipe"));
        let mut browser = Self {
            child,
            input,
            output,
            session: String::new(),
            last_id: 0,
            events: Vec::new(),
            complaints: Vec::new(),
            _profile: profile,
        };
        let target = browser.command("Target.createTarget", json!({ "url": "about:blank" }));
        let attached = browser
            .command("Target.attachToTarget", json!({ "targetId": target["targetId"], "flatten": true }));
        browser.session = attached["sessionId"].as_str().expect("a session").to_owned();
        for domain in ["Page", "Runtime", "Log"] {
            browser.command(&format!("{domain}.enable"), json!({}));
        }
        Some(browser)
    }

    /// Sends a command and waits for its result.
    ///
    /// # Panics
    /// When the browser ends or refuses.
    pub fn command(&mut self, method: &str, parameters: Value) -> Value {
        self.last_id += 1;
        let id = self.last_id;
        let mut message = json!({ "id": id, "method": method, "params": parameters });
        if !self.session.is_empty() {
            message["sessionId"] = self.session.clone().into();
        }
        let mut bytes = message.to_string().into_bytes();
        bytes.push(END);
        self.input.write_all(&bytes).expect("the browser reads");
        loop {
            let message = self.read();
            if message["id"] == id {
                assert!(message["error"].is_null(), "{method}: {}", message["error"]);
                return message["result"].clone();
            }
            self.events.push(message);
        }
    }

    fn read(&mut self) -> Value {
        let mut bytes = Vec::new();
        self.output.read_until(END, &mut bytes).expect("the browser writes");
        assert_eq!(bytes.pop(), Some(END), "the browser has ended");
        let message: Value = serde_json::from_slice(&bytes).expect("JSON");
        let parameters = &message["params"];
        match message["method"].as_str() {
            Some("Runtime.exceptionThrown") => {
                self.complaints.push(parameters["exceptionDetails"].to_string())
            }
            Some("Log.entryAdded") if parameters["entry"]["level"] == "error" => {
                self.complaints.push(parameters["entry"].to_string());
            }
            _ => {}
        }
        message
    }

    fn wait_for(&mut self, method: &str) {
        loop {
            if let Some(at) = self.events.iter().position(|event| event["method"] == method) {
                self.events.drain(..=at);
                return;
            }
            let message = self.read();
            self.events.push(message);
        }
    }

    /// Opens a page and waits until it is loaded.
    pub fn open(&mut self, url: &str) {
        self.events.clear();
        self.command("Page.navigate", json!({ "url": url }));
        self.wait_for("Page.loadEventFired");
    }

    /// Runs a script that leads to another page, and waits until that is loaded.
    pub fn leave_by(&mut self, script: &str) {
        self.events.clear();
        self.run(script);
        self.wait_for("Page.loadEventFired");
    }

    /// Runs a script, which may be a promise; its value.
    ///
    /// # Panics
    /// When the script fails.
    pub fn run(&mut self, script: &str) -> Value {
        let parameters = json!({ "expression": script, "awaitPromise": true, "returnByValue": true });
        let result = self.command("Runtime.evaluate", parameters);
        assert!(result["exceptionDetails"].is_null(), "{script}: {}", result["exceptionDetails"]);
        result["result"]["value"].clone()
    }

    /// Clicks what a selector finds, and waits for the page that it leads to.
    pub fn click(&mut self, selector: &str) {
        self.leave_by(&format!("document.querySelector({}).click()", json!(selector)));
    }

    /// Writes into a field as a user does.
    pub fn fill(&mut self, selector: &str, value: &str) {
        self.run(&format!(
            "(() => {{ const field = document.querySelector({}); field.value = {}; \
             field.dispatchEvent(new Event('input', {{ bubbles: true }})); }})()",
            json!(selector),
            json!(value)
        ));
    }

    /// The text that is shown.
    pub fn text(&mut self) -> String {
        self.run("document.body.innerText").as_str().unwrap_or("").to_owned()
    }

    /// The page's address.
    pub fn address(&mut self) -> String {
        self.run("location.href").as_str().unwrap_or("").to_owned()
    }

    /// Presses and releases a key: `Tab`, `Enter`, `ArrowDown` or a single character.
    pub fn press(&mut self, key: &str) {
        let (code, text) = match key {
            "Tab" => (9, ""),
            "Enter" => (13, "\r"),
            "ArrowLeft" => (37, ""),
            "ArrowUp" => (38, ""),
            "ArrowRight" => (39, ""),
            "ArrowDown" => (40, ""),
            other => (0, other),
        };
        let down = json!({ "type": "keyDown", "key": key, "code": key, "windowsVirtualKeyCode": code, "text": text });
        self.command("Input.dispatchKeyEvent", down);
        self.command(
            "Input.dispatchKeyEvent",
            json!({ "type": "keyUp", "key": key, "windowsVirtualKeyCode": code }),
        );
    }

    /// Types text into what has the focus.
    pub fn type_text(&mut self, text: &str) {
        self.command("Input.insertText", json!({ "text": text }));
    }

    /// Waits until a script's value is true, as the page's own timers make it.
    pub fn until(&mut self, condition: &str) {
        self.run(&format!(
            "new Promise((done) => {{ const look = () => ({condition}) ? done(true) : requestAnimationFrame(look); look(); }})"
        ));
    }

    /// The size of the window in pixels.
    pub fn resize(&mut self, width: u32, height: u32) {
        let metrics = json!({ "width": width, "height": height, "deviceScaleFactor": 1, "mobile": false });
        self.command("Emulation.setDeviceMetricsOverride", metrics);
    }

    /// `light` or `dark`.
    pub fn prefer(&mut self, scheme: &str) {
        let features = json!({ "features": [{ "name": "prefers-color-scheme", "value": scheme }] });
        self.command("Emulation.setEmulatedMedia", features);
    }

    /// A picture of the window as PNG in base64.
    pub fn picture(&mut self) -> String {
        let result = self.command("Page.captureScreenshot", json!({ "format": "png" }));
        result["data"].as_str().unwrap_or("").to_owned()
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        // It may have ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
