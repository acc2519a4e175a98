//! What a node says of itself in the engine, for `larix cluster status`: its version, and how its configuration stands to the one that all nodes
//! have in common.

use super::following::ConfigurationState;
use super::report::NodeReport;

/// The form of what is said. Lines that a reader does not know are passed over, so a later version may add some to this form.
const FORM: u32 = 1;
const TITLE: &str = "larix node ";
/// Of the reason for a refusal so much is said, in characters.
const REASON_CHARS_MAX: usize = 1_000;

/// What a node says.
pub(super) fn encode(state: &ConfigurationState) -> Vec<u8> {
    let ConfigurationState { is_shared, newest, in_force, refused } = state;
    let shared = if *is_shared { "shared" } else { "own" };
    let mut text = format!(
        "{TITLE}{FORM}\nversion {}\nconfiguration {shared}\nnewest {newest}\nin-force {in_force}\n",
        env!("CARGO_PKG_VERSION")
    );
    if let Some(why) = refused {
        let on_a_line = |letter: char| if letter.is_control() { ' ' } else { letter };
        let why: String = why.chars().take(REASON_CHARS_MAX).map(on_a_line).collect();
        text += &format!("refused {why}\n");
    }
    text.into_bytes()
}

/// What a node has said; none where this version cannot read it.
pub(super) fn decode(bytes: &[u8]) -> Option<NodeReport> {
    let text = std::str::from_utf8(bytes).ok()?;
    let (title, lines) = text.split_once('\n')?;
    let form: u32 = title.strip_prefix(TITLE)?.parse().ok()?;
    if form != FORM {
        return None;
    }
    let of = |word: &str| lines.lines().find_map(|line| line.strip_prefix(word)?.strip_prefix(' '));
    let number = |word| of(word).and_then(|number| number.parse().ok());
    Some(NodeReport {
        version: of("version")?.to_owned(),
        is_shared: of("configuration") == Some("shared"),
        newest: number("newest")?,
        in_force: number("in-force")?,
        refused: of("refused").map(str::to_owned),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_is_read() {
        let state = |refused: Option<&str>| ConfigurationState {
            is_shared: refused.is_some(),
            newest: 7,
            in_force: 6,
            refused: refused.map(str::to_owned),
        };
        let long = "ü".repeat(REASON_CHARS_MAX + 1);
        let cut = "ü".repeat(REASON_CHARS_MAX);
        for (refused, expected) in
            [(None, None), (Some("line 3:\nwhy"), Some("line 3: why")), (Some(&long), Some(&*cut))]
        {
            let bytes = encode(&state(refused));
            let report = decode(&bytes).expect("it is read");
            assert_eq!(report.version, env!("CARGO_PKG_VERSION"));
            assert_eq!((report.is_shared, report.newest, report.in_force), (refused.is_some(), 7, 6));
            assert_eq!(report.refused.as_deref(), expected);
        }
    }

    #[test]
    fn what_others_say_is_read_as_far_as_it_is_known() {
        let text = String::from_utf8(encode(&ConfigurationState::default())).expect("text");
        assert!(decode(format!("{text}later thing\n").as_bytes()).is_some(), "a line more");
        for other in [&*text.replace("node 1", "node 2"), &text.replace("newest 0", "newest -"), "", "larix"]
        {
            assert_eq!(decode(other.as_bytes()), None, "{other}");
        }
        assert_eq!(decode(b"\xff\n"), None);
    }
}
