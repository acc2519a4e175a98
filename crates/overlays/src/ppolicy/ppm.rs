//! Rules for new passwords that a policy brings in its pwdCheckModuleArg, in the language of OpenLDAP's contributed module ppm: a
//! parameter and its values on each line.

use larix_engine::Entry;
use larix_engine::password::PASSWORD_MAX;
use larix_schema::Schema;

/// The most lines that are read.
const LINES_MAX: usize = 1000;

/// The most parts of values that a password is searched for.
const TOKENS_MAX: usize = 1000;

/// Parts of values that are shorter say nothing.
const TOKEN_CHARACTERS_MIN: usize = 3;

const RDN_DELIMITERS: &[char] = &[' ', ',', ';', '-', '_', '£', '\t'];
const VALUE_DELIMITERS: &[char] = &[' ', ',', ';', '-', '_', '@', '\t'];

/// What one policy asks of passwords.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Rules {
    /// So many classes must give a point.
    min_quality: u32,
    /// No part of the entry's RDN may be in the password.
    check_rdn: bool,
    /// Nor any part of the values of these attributes.
    attributes: Vec<String>,
    forbidden: String,
    /// So many characters of one class may follow each other; 0: any number.
    max_consecutive: u32,
    /// The password may not be a word of the dictionary.
    pub(super) dictionary: bool,
    classes: Vec<Class>,
}

/// A class of characters, and how many of them there should be.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Class {
    /// `class-digit`
    name: String,
    characters: Vec<char>,
    min: u32,
    /// So many give a point.
    for_point: u32,
    /// 0: any number.
    max: u32,
}

/// Whose password it is to be.
#[derive(Copy, Clone, Debug)]
pub(super) struct Owner<'a> {
    /// As answers name it.
    pub(super) dn: &'a str,
    pub(super) entry: &'a Entry,
    pub(super) schema: &'a Schema,
}

impl Default for Rules {
    fn default() -> Self {
        let class = |name: &str, characters| Class::new(name, characters, (0, 1, 0));
        Self {
            min_quality: 3,
            check_rdn: false,
            attributes: Vec::new(),
            forbidden: String::new(),
            max_consecutive: 0,
            dictionary: false,
            classes: vec![
                class("class-upperCase", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
                class("class-lowerCase", "abcdefghijklmnopqrstuvwxyz"),
                class("class-digit", "0123456789"),
                class("class-special", "<>,?;.:/!§ù%*µ^¨$£²&é~\"#'{([-|è`_\\ç^à@)]°=}+"),
            ],
        }
    }
}

impl Class {
    fn new(name: &str, characters: &str, (min, for_point, max): (u32, u32, u32)) -> Self {
        let mut characters: Vec<char> = characters.chars().collect();
        characters.sort_unstable();
        Self { name: name.to_owned(), characters, min, for_point, max }
    }

    fn has(&self, character: char) -> bool {
        self.characters.binary_search(&character).is_ok()
    }

    fn count(&self, password: &str) -> u32 {
        number_of(password.chars().filter(|character| self.has(*character)).count())
    }

    /// The most characters of the class that follow each other.
    fn longest_run(&self, password: &str) -> u32 {
        let (mut run, mut longest) = (0, 0);
        for character in password.chars() {
            run = if self.has(character) { run + 1 } else { 0 };
            longest = longest.max(run);
        }
        longest
    }
}

fn number_of(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

impl Rules {
    /// Reads the rules. Parameters that are not known are passed over, as ppm does, and so is one without a value.
    ///
    /// # Errors
    /// What is wrong with a line.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let mut rules = Self::default();
        for (number, line) in text.lines().map(str::trim).enumerate() {
            if number >= LINES_MAX {
                return Err(format!("more than {LINES_MAX} lines"));
            }
            if !line.is_empty() && !line.starts_with('#') {
                rules.read(line)?;
            }
        }
        Ok(rules)
    }

    fn read(&mut self, line: &str) -> Result<(), String> {
        let mut words = line.split([' ', '\t']).filter(|word| !word.is_empty());
        let (Some(parameter), Some(value)) = (words.next(), words.next()) else { return Ok(()) };
        let number =
            |word: &str| word.parse::<u32>().map_err(|_| format!("`{line}`: \"{word}\" is not a number"));
        match parameter {
            "minQuality" => self.min_quality = number(value)?,
            "checkRDN" => self.check_rdn = number(value)? == 1,
            "checkAttributes" => self.attributes = value.split(',').map(str::to_owned).collect(),
            "forbiddenChars" => value.clone_into(&mut self.forbidden),
            "maxConsecutivePerClass" => self.max_consecutive = number(value)?,
            "useCracklib" => self.dictionary = number(value)? > 0,
            name if name.starts_with("class-") => {
                let mut count = || words.next().map_or(Ok(0), number);
                let class = Class::new(name, value, (count()?, count()?, count()?));
                match self.classes.iter_mut().find(|known| known.name == name) {
                    Some(known) => *known = class,
                    None => self.classes.push(class),
                }
            }
            _ => {}
        }
        Ok(())
    }

    /// What is wrong with a password, in the order in which ppm looks.
    pub(super) fn fault(&self, password: &[u8], owner: &Owner<'_>) -> Option<String> {
        if password.len() > PASSWORD_MAX {
            return Some(format!("Password is longer than {PASSWORD_MAX} bytes"));
        }
        let password = &*String::from_utf8_lossy(password);
        let dn = owner.dn;
        let about = |what: String| Some(format!("Password for dn=\"{dn}\" {what}"));
        let counts: Vec<(&Class, u32)> =
            self.classes.iter().map(|class| (class, class.count(password))).collect();
        let points = number_of(counts.iter().filter(|(class, count)| *count >= class.for_point).count());
        if points < self.min_quality {
            let wanted = self.min_quality;
            return about(format!("does not pass required number of strength checks ({points} of {wanted})"));
        }
        for (Class { name, min, .. }, count) in &counts {
            if count < min {
                return about(format!(
                    "has not reached the minimum number of characters ({min}) for class {name}"
                ));
            }
        }
        for (Class { name, max, .. }, count) in &counts {
            if *max != 0 && count > max {
                return about(format!(
                    "has reached the maximum number of characters ({max}) for class {name}"
                ));
            }
        }
        let forbidden = password.chars().filter(|character| self.forbidden.contains(*character)).count();
        if forbidden > 0 {
            return about(format!("contains {forbidden} forbidden characters in {}", self.forbidden));
        }
        if self.max_consecutive > 0
            && let Some(class) =
                self.classes.iter().find(|class| class.longest_run(password) > self.max_consecutive)
        {
            let (most, name) = (self.max_consecutive, &class.name);
            return about(format!(
                "has reached the maximum number of characters of the same class in a row ({most}) for class {name}"
            ));
        }
        let password = password.to_lowercase();
        let rdn = rdn_values(owner.entry);
        if self.check_rdn && has_part(&password, rdn.iter().map(String::as_str), RDN_DELIMITERS) {
            return about("contains tokens from the RDN".to_owned());
        }
        if self.has_part_of_values(&password, owner) {
            return about("is too simple: it contains part of an attribute's value".to_owned());
        }
        None
    }

    fn has_part_of_values(&self, password: &str, owner: &Owner<'_>) -> bool {
        let types = self.attributes.iter().filter_map(|name| owner.schema.attribute_type(name));
        let values = types.flat_map(|attribute| owner.entry.values(attribute.id));
        has_part(password, values.filter_map(|value| std::str::from_utf8(value).ok()), VALUE_DELIMITERS)
    }
}

/// The values of the entry's RDN, as they are shown.
fn rdn_values(entry: &Entry) -> Vec<String> {
    let values = entry.rdn().split('+').filter_map(|part| part.split_once('='));
    values.map(|(_, value)| value.replace('\\', "")).collect()
}

/// Whether a password in lower case has a part of one of the values in it.
fn has_part<'v>(password: &str, values: impl Iterator<Item = &'v str>, delimiters: &[char]) -> bool {
    let parts = values.flat_map(|value| value.split(delimiters));
    // A part that is longer than the password is not in it, and need not be made lower case.
    let mut parts = parts
        .filter(|part| part.len() <= 4 * password.len() && part.chars().count() >= TOKEN_CHARACTERS_MIN)
        .take(TOKENS_MAX);
    parts.any(|part| password.contains(&part.to_lowercase()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test says where it failed by panicking")]

    use larix_engine::EntryAttribute;

    use super::*;
    use crate::testing::schema;

    fn fault(rules: &str, dn: &str, password: &str) -> String {
        let schema = schema("");
        let mut entry = Entry::new(dn);
        let mail = schema.describe("mail").unwrap();
        entry.attributes.push(EntryAttribute::new(mail, vec![b"jack.oneill@sgc.example".to_vec()]));
        let owner = Owner { dn, entry: &entry, schema: &schema };
        Rules::parse(rules).unwrap().fault(password.as_bytes(), &owner).unwrap_or_default()
    }

    const USER: &str = "uid=User_Password10-test,ou=users,dc=example,dc=com";

    /// The cases that ppm is tested with, and some more.
    #[test]
    fn passwords_are_judged_as_ppm_does() {
        let second = "minQuality 3\nforbiddenChars à\nmaxConsecutivePerClass 5\n\
                      class-upperCase ABCDEFGHIJKLMNOPQRSTUVWXYZ 2 4 10\nclass-lowerCase abcdefghijklmnopqrstuvwxyz 3 4 12\n\
                      class-digit 0123456789 2 4 10\nclass-special .;! 0 4 10";
        for (rules, password, expected) in [
            ("", "azerty", "does not pass required number of strength checks (1 of 3)"),
            ("", "azeRTY", "(2 of 3)"),
            ("", "azeRTY123", ""),
            ("", "azeRTY.", ""),
            ("# a comment\n\nminQuality 2\nunknown 7\ncheckRDN", "azeRTY", ""),
            (second, "AAaaa01AAaaa01AAaaa0", ""),
            (second, "AAaaa01AAaaa01AAaaaà0", "contains 1 forbidden characters in à"),
            (second, "AAaaa01AAaaa01AAAAAA", "(5) for class class-upperCase"),
            (second, "Aaaaa01aaaa0.aaaa.1.;", "minimum number of characters (2) for class class-upperCase"),
            (second, "aaAAA01BB0123AAA.;.;", "minimum number of characters (3) for class class-lowerCase"),
            (second, "AA11aa11AA11aaa11..11..", ""),
            (second, "AA11aa11AA11aaa11..11..1", "maximum number of characters (10) for class class-digit"),
            ("checkRDN 1", "xpassworD10", "contains tokens from the RDN"),
            ("checkRDN 1", "Passw0rd10", ""),
            ("checkRDN 0", "Password10", ""),
            ("checkAttributes mail", "Sgc.Example1", "contains part of an attribute's value"),
            ("checkAttributes cn,mail", "1Jack.Oneill", "contains part of an attribute's value"),
            ("checkAttributes cn,mail", "1Jack.ONeal", ""),
            ("minQuality 5\nclass-mine :) 1 1 0", "aB1.", "(4 of 5)"),
            ("minQuality 5\nclass-mine :) 1 1 0", "aB1.)", ""),
            // Characters are counted, not bytes.
            ("minQuality 0\nclass-special §£ 0 0 2", "§£", ""),
        ] {
            let found = fault(rules, USER, password);
            assert!(
                found.contains(expected) && found.is_empty() == expected.is_empty(),
                "{password}: {found}"
            );
        }
        assert_eq!(
            fault("", "cn=a,dc=b", "azerty"),
            "Password for dn=\"cn=a,dc=b\" does not pass required number of strength checks (1 of 3)"
        );
    }

    #[test]
    fn a_number_that_is_none_is_named() {
        let fault = |text: &str| Rules::parse(text).unwrap_err();
        assert_eq!(fault("minQuality many"), "`minQuality many`: \"many\" is not a number");
        assert_eq!(fault("class-digit 0123 1 x"), "`class-digit 0123 1 x`: \"x\" is not a number");
        assert_eq!(fault(&"#\n".repeat(1001)), "more than 1000 lines");
    }

    #[test]
    fn long_passwords_and_values_take_no_time_to_speak_of() {
        let long = "a".repeat(PASSWORD_MAX + 1);
        assert!(fault("", USER, &long).contains("longer"));
    }
}
