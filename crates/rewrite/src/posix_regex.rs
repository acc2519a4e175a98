//! Regular expressions as the configuration writes them.

/// Compiles a POSIX extended regular expression, in which `.` stands for every character, line ends too; letters match in either case
/// if asked for.
///
/// # Errors
/// Says why it is none.
pub fn posix_regex(pattern: &str, any_case: bool) -> Result<regex::Regex, String> {
    regex::RegexBuilder::new(pattern)
        .case_insensitive(any_case)
        .dot_matches_new_line(true)
        .size_limit(1 << 20)
        .build()
        .map_err(|error| format!("not a regular expression: {error}"))
}
