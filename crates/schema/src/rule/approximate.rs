//! Approximate matching: words compared by how they sound.

/// Emits a phonetic code for each word of `text`, in order.
pub fn approximate_words(text: &str, mut emit: impl FnMut(&[u8])) {
    let mut prepared = Vec::with_capacity(text.len());
    crate::prep::prepare(text, true, crate::prep::Position::Whole, &mut prepared);
    let prepared = String::from_utf8(prepared).unwrap_or_default();
    for word in prepared.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty()) {
        emit(sound(word).as_bytes());
    }
}

pub(super) fn approximate_key(text: &str, out: &mut Vec<u8>) {
    let mut first = true;
    approximate_words(text, |code| {
        if !first {
            out.push(b' ');
        }
        first = false;
        out.extend_from_slice(code);
    });
}

/// Whether the words of the assertion occur in the value in the same order, others between them allowed.
pub(super) fn words_match(value_key: &[u8], assertion_key: &[u8]) -> bool {
    let mut words = value_key.split(|&b| b == b' ');
    assertion_key.split(|&b| b == b' ').all(|wanted| words.any(|word| word == wanted))
}

/// The first letter and classes of the consonants after it; vowels, doubled and silent letters do not count. Words
/// with other than ASCII letters stand for themselves.
fn sound(word: &str) -> String {
    if !word.bytes().all(|b| b.is_ascii_alphabetic()) {
        return word.to_owned();
    }
    let respelled = respell(word);
    let mut code = String::new();
    let mut last = None;
    for letter in respelled.chars() {
        let class = class(letter);
        if code.is_empty() {
            code.push(if class == Some('0') || class.is_none() { letter } else { class.unwrap_or(letter) });
        } else if let Some(class) = class
            && class != '0'
            && last != Some(class)
        {
            code.push(class);
        }
        // h and w do not part two letters of one class; vowels do.
        if class.is_some() {
            last = class;
        }
    }
    code
}

/// Spellings of one sound made one.
fn respell(word: &str) -> String {
    let mut text = word.to_owned();
    for (from, to) in [("kn", "n"), ("gn", "n"), ("wr", "r"), ("ps", "s"), ("x", "s"), ("wh", "w")] {
        if let Some(rest) = text.strip_prefix(from) {
            text = format!("{to}{rest}");
            break;
        }
    }
    for (from, to) in [
        ("ph", "f"),
        ("ght", "t"),
        ("sch", "sk"),
        ("tch", "ch"),
        ("ck", "k"),
        ("dge", "j"),
        ("ce", "se"),
        ("ci", "si"),
        ("cy", "sy"),
        ("mb", "m"),
    ] {
        text = text.replace(from, to);
    }
    text
}

/// `None` for letters without sound, `0` for vowels.
fn class(letter: char) -> Option<char> {
    Some(match letter {
        'a' | 'e' | 'i' | 'o' | 'u' | 'y' => '0',
        'b' | 'p' => 'p',
        'f' | 'v' => 'f',
        'c' | 'k' | 'q' | 'g' => 'k',
        'j' => 'j',
        's' | 'z' | 'x' => 's',
        'd' | 't' => 't',
        'l' => 'l',
        'm' | 'n' => 'n',
        'r' => 'r',
        _ => return None,
    })
}
