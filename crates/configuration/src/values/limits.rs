//! Search limits: sizelimit, timelimit and limits.

use larix_schema::Schema;

use super::ConfigDn;
use larix_engine::access::posix_regex;

/// Limits of one search.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SearchLimits {
    pub time: TimeLimit,
    pub size: SizeLimit,
}

/// Seconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TimeLimit {
    pub soft: Soft,
    pub hard: Hard,
}

impl Default for TimeLimit {
    fn default() -> Self {
        Self { soft: Soft::At(3600), hard: Hard::AsSoft }
    }
}

/// Entries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SizeLimit {
    pub soft: Soft,
    pub hard: Hard,
    /// Candidates that may be examined.
    pub unchecked: Unchecked,
    /// Entries on one page; `None`: no limit.
    pub page: Option<u32>,
    /// `size.pr=noEstimate`: no count in the paged results response.
    pub hide_estimate: bool,
    /// Entries in all pages together.
    pub paged_total: PagedTotal,
}

impl Default for SizeLimit {
    fn default() -> Self {
        Self {
            soft: Soft::At(500),
            hard: Hard::AsSoft,
            unchecked: Unchecked::Unlimited,
            page: None,
            hide_estimate: false,
            paged_total: PagedTotal::AsHard,
        }
    }
}

/// What holds when the client asks for no limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Soft {
    Unlimited,
    At(u32),
}

/// The most a client may ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hard {
    AsSoft,
    Unlimited,
    At(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unchecked {
    Unlimited,
    /// No search that needs a check of candidates.
    Disabled,
    At(u32),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PagedTotal {
    AsHard,
    Unlimited,
    /// The paged results control is refused.
    Disabled,
    At(u32),
}

/// One `limits <who> <limit>...` line.
#[derive(Debug, Clone)]
pub struct LimitRule {
    pub subject: LimitSubject,
    /// The section's limits with this line's changes applied.
    pub limits: SearchLimits,
}

/// Whom a `limits` line is for.
#[derive(Debug, Clone)]
pub enum LimitSubject {
    Any,
    Anonymous,
    Users,
    /// `dn[.self].exact=` and the other styles; `this`: the search base rather than the client.
    Dn {
        this: bool,
        style: DnStyle,
        dn: ConfigDn,
    },
    /// `dn.regex=`, matched against the normal form.
    DnRegex {
        this: bool,
        pattern: String,
        regex: regex::Regex,
    },
    Group {
        class: String,
        attribute: String,
        dn: ConfigDn,
    },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DnStyle {
    Exact,
    OneLevel,
    Subtree,
    Children,
}

impl SearchLimits {
    /// One word of a `limits` line: `time...` or `size...`.
    pub(crate) fn apply_word(&mut self, word: &str) -> Result<(), String> {
        let lower = word.to_ascii_lowercase();
        if lower.starts_with("time") {
            self.time.apply(&lower)
        } else if lower.starts_with("size") {
            self.size.apply(&lower)
        } else {
            Err(format!(
                "no limit `{word}`; say size[.soft|.hard|.unchecked|.pr|.prtotal]= or time[.soft|.hard]="
            ))
        }
    }

    /// One word of a `sizelimit` line: a number, `unlimited` or as in `limits`.
    pub(crate) fn apply_size_word(&mut self, word: &str) -> Result<(), String> {
        let lower = word.to_ascii_lowercase();
        if lower.starts_with("size") {
            return self.size.apply(&lower);
        }
        self.size.soft = soft(&lower)?;
        self.size.hard = Hard::AsSoft;
        Ok(())
    }

    /// One word of a `timelimit` line.
    pub(crate) fn apply_time_word(&mut self, word: &str) -> Result<(), String> {
        let lower = word.to_ascii_lowercase();
        if lower.starts_with("time") {
            return self.time.apply(&lower);
        }
        self.time.soft = soft(&lower)?;
        self.time.hard = Hard::AsSoft;
        Ok(())
    }

    /// Makes a `limits` line consistent as OpenLDAP does: a hard limit below the soft one gives way to it, and no page
    /// is larger than all pages together.
    pub(crate) fn settle(&mut self) {
        self.time.hard = settled(self.time.soft, self.time.hard);
        self.size.hard = settled(self.size.soft, self.size.hard);
        if let (PagedTotal::At(total), Some(page)) = (self.size.paged_total, self.size.page) {
            self.size.page = Some(page.min(total));
        }
    }
}

/// The hard limit that holds beside a soft one.
fn settled(soft: Soft, hard: Hard) -> Hard {
    match (soft, hard) {
        (Soft::Unlimited, Hard::At(_)) => Hard::Unlimited,
        (Soft::At(soft), Hard::At(hard)) if hard < soft => Hard::At(soft),
        _ => hard,
    }
}

impl TimeLimit {
    /// `time=`, `time.soft=`, `time.hard=`; lower case.
    fn apply(&mut self, word: &str) -> Result<(), String> {
        match split(word)? {
            ("time", value) => (self.soft, self.hard) = (soft(value)?, Hard::AsSoft),
            ("time.soft", value) => self.soft = soft(value)?,
            ("time.hard", value) => self.hard = hard(value)?,
            (other, _) => return Err(format!("no limit `{other}`; say time, time.soft or time.hard")),
        }
        Ok(())
    }
}

impl SizeLimit {
    /// `size=`, `size.soft=` and the others; lower case.
    fn apply(&mut self, word: &str) -> Result<(), String> {
        match split(word)? {
            ("size", value) => (self.soft, self.hard) = (soft(value)?, Hard::AsSoft),
            ("size.soft", value) => self.soft = soft(value)?,
            ("size.hard", value) => self.hard = hard(value)?,
            ("size.unchecked", "disabled") => self.unchecked = Unchecked::Disabled,
            ("size.unchecked", value) => {
                self.unchecked = number(value)?.map_or(Unchecked::Unlimited, |limit| match limit {
                    0 => Unchecked::Disabled,
                    limit => Unchecked::At(limit),
                });
            }
            ("size.pr", "noestimate") => self.hide_estimate = true,
            ("size.pr", value) => self.page = number(value)?.filter(|limit| *limit > 0),
            ("size.prtotal", "disabled") => self.paged_total = PagedTotal::Disabled,
            ("size.prtotal", "hard" | "0") => self.paged_total = PagedTotal::AsHard,
            ("size.prtotal", value) => {
                self.paged_total = number(value)?.map_or(PagedTotal::Unlimited, PagedTotal::At)
            }
            (other, _) => {
                return Err(format!(
                    "no limit `{other}`; say size, size.soft, .hard, .unchecked, .pr or .prtotal"
                ));
            }
        }
        Ok(())
    }
}

fn split(word: &str) -> Result<(&str, &str), String> {
    word.split_once('=').ok_or_else(|| format!("`{word}` has no value"))
}

/// None: unlimited.
fn number(value: &str) -> Result<Option<u32>, String> {
    match value {
        "unlimited" | "none" | "-1" => Ok(None),
        _ => {
            let number = crate::line::c_integer(value).and_then(|number| u64::try_from(number).ok());
            let number =
                number.ok_or_else(|| format!("`{value}` is not a limit; say a number or unlimited"))?;
            // maxInt of RFC 4511, and an `int` of slapd's.
            let number = u32::try_from(number).ok().filter(|number| i32::try_from(*number).is_ok());
            number.map(Some).ok_or_else(|| format!("`{value}` is more than 2147483647; say unlimited"))
        }
    }
}

fn soft(value: &str) -> Result<Soft, String> {
    Ok(number(value)?.map_or(Soft::Unlimited, Soft::At))
}

fn hard(value: &str) -> Result<Hard, String> {
    Ok(match value {
        "soft" | "0" => Hard::AsSoft,
        _ => number(value)?.map_or(Hard::Unlimited, Hard::At),
    })
}

impl LimitSubject {
    /// The first word after `limits`.
    pub(crate) fn parse(schema: &Schema, word: &str) -> Result<Self, String> {
        let lower = word.to_ascii_lowercase();
        match lower.as_str() {
            "*" => return Ok(Self::Any),
            "anonymous" => return Ok(Self::Anonymous),
            "users" => return Ok(Self::Users),
            _ => {}
        }
        let Some((selector, value)) = word.split_once('=') else {
            return Err(match lower.as_str() {
                "dn.anonymous" | "dn.self.anonymous" => return Ok(Self::Anonymous),
                _ => format!("`{word}` names nobody"),
            });
        };
        let selector = selector.to_ascii_lowercase();
        if let Some(group) = after_keyword("group", '/', &selector) {
            return Self::group(schema, group, value);
        }
        let Some(styles) = after_keyword("dn", '.', &selector) else {
            // A DN that says no more is one client.
            let dn = ConfigDn::parse(schema, word).map_err(|_| format!("`{word}` names nobody"))?;
            return Ok(Self::Dn { this: false, style: DnStyle::Exact, dn });
        };
        let mut parts = styles.split('.').skip(1).peekable();
        let this = parts.next_if(|part| matches!(*part, "this" | "self")) == Some("this");
        let style = match parts.next() {
            None | Some("exact" | "base") => Some(DnStyle::Exact),
            Some("one" | "onelevel") => Some(DnStyle::OneLevel),
            Some("sub" | "subtree") => Some(DnStyle::Subtree),
            Some("children") => Some(DnStyle::Children),
            Some("regex") => None,
            Some("anonymous") => return Ok(Self::Anonymous),
            Some("users") => return Ok(Self::Users),
            Some(other) => return Err(format!("no style `{other}`")),
        };
        if let Some(more) = parts.next() {
            return Err(format!("`{more}` is a second style"));
        }
        match style {
            _ if value == "*" => Ok(Self::Any),
            None if value == ".*" => Ok(Self::Any),
            None => {
                let regex = posix_regex(value, true)?;
                Ok(Self::DnRegex { this, pattern: value.to_owned(), regex })
            }
            Some(style) => {
                let dn = ConfigDn::parse(schema, value).map_err(|error| error.to_string())?;
                Ok(Self::Dn { this, style, dn })
            }
        }
    }

    /// `group[/class[/attribute]]=<dn>` after the word `group`.
    fn group(schema: &Schema, selector: &str, value: &str) -> Result<Self, String> {
        let mut parts = selector.split('/').skip(1);
        let class = parts.next().unwrap_or("groupOfNames").to_owned();
        let attribute = parts.next().unwrap_or("member").to_owned();
        if let Some(more) = parts.next() {
            return Err(format!("`{more}`: a class and an attribute are all that a group has"));
        }
        Ok(Self::Group {
            class,
            attribute,
            dn: ConfigDn::parse(schema, value).map_err(|error| error.to_string())?,
        })
    }
}

/// What follows a keyword, if that is nothing or begins with the separator.
fn after_keyword<'s>(keyword: &str, separator: char, selector: &'s str) -> Option<&'s str> {
    selector.strip_prefix(keyword).filter(|rest| rest.is_empty() || rest.starts_with(separator))
}
