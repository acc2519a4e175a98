//! LDIF cut into pieces of whole records, which several threads can read on their own.

use std::fmt;
use std::io::{self, BufRead};

use super::lines::{Files, SourcePosition, file_path};
use super::{LdifError, LdifFault};
use crate::limits;

/// Whole records of one file, as they stand in it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Chunk {
    pub bytes: Vec<u8>,
    /// The number of the first line, from 1: in the included file if there is one, else in the input.
    pub line: u64,
    /// The `file:` URL of the included file that the lines are in.
    pub file: Option<String>,
    /// How many records, if the ends of lines show it: each of them begins with its DN behind an empty line.
    pub records: Option<u64>,
}

/// Cuts an input, and the files that it includes, into chunks. [`super::Reader::of_chunk`] reads them; there are no
/// `include:` lines in them.
pub struct Chunks<R> {
    base: Level<R>,
    included: Vec<Level<Box<dyn BufRead + Send>>>,
    files: Option<Box<dyn Files>>,
    /// What ends the input once what was read before it has been given.
    failed: Option<LdifError>,
    ended: bool,
    spare: Vec<u8>,
}

/// A file being read.
struct Level<R> {
    reader: R,
    bytes: Vec<u8>,
    /// Bytes from here on have not been given yet.
    from: usize,
    /// The number of the first line of those.
    line: u64,
    url: Option<String>,
}

/// Where lines are in a record.
#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Between,
    InComment,
    InRecord,
}

/// What the lines at the beginning of a level's bytes are.
enum Cut {
    /// So many bytes and lines of whole records.
    At(usize, u64),
    /// The first line is an `include:` of so many bytes, its end included.
    Include(usize),
    /// No record is whole yet, or not as many as wanted.
    More,
}

impl<R: BufRead> Chunks<R> {
    pub fn new(base: R) -> Self {
        let base = Level::new(base, None);
        Self { base, included: Vec::new(), files: None, failed: None, ended: false, spare: Vec::new() }
    }

    /// Lets `include: file:...` read files.
    #[must_use]
    pub fn with_files(mut self, files: impl Files + 'static) -> Self {
        self.files = Some(Box::new(files));
        self
    }

    /// Takes back a chunk that is no longer needed, for its memory.
    pub fn recycle(&mut self, chunk: Chunk) {
        self.spare = chunk.bytes;
        self.spare.clear();
    }

    /// The next records, at least `bytes` of them unless the file ends or another is included; `None` at the end.
    ///
    /// # Errors
    /// As [`super::Reader::read_record`]; what was read before the fault has been given then.
    pub fn next_chunk(&mut self, bytes: usize) -> Result<Option<Chunk>, LdifError> {
        loop {
            if let Some(error) = self.failed.take() {
                self.ended = true;
                return Err(error);
            }
            if self.ended {
                return Ok(None);
            }
            let step = match self.included.last_mut() {
                Some(level) => level.step(bytes, &mut self.spare),
                None => self.base.step(bytes, &mut self.spare),
            };
            match step {
                Step::Chunk(chunk) => return Ok(Some(chunk)),
                Step::Failed(error) => self.failed = Some(error),
                Step::Include { url, place } => self.include(url, &place)?,
                Step::End => self.ended = self.included.pop().is_none(),
            }
        }
    }

    fn include(&mut self, url: String, place: &SourcePosition) -> Result<(), LdifError> {
        if self.included.len() >= limits::LDIF_INCLUDES {
            return Err(place.error(LdifFault::TooManyIncludes(limits::LDIF_INCLUDES)));
        }
        let opened = match (file_path(&url), &mut self.files) {
            (None, _) => Err(LdifFault::UnsupportedUrl(url.clone())),
            (_, None) => Err(LdifFault::FilesNotAllowed(url.clone())),
            (Some(path), Some(files)) => {
                files.open(&path).map_err(|error| LdifFault::File { url: url.clone(), error })
            }
        };
        let reader = opened.map_err(|fault| place.error(fault))?;
        self.included.push(Level::new(reader, Some(url)));
        Ok(())
    }
}

enum Step {
    Chunk(Chunk),
    Include { url: String, place: SourcePosition },
    Failed(LdifError),
    End,
}

impl<R: BufRead> Level<R> {
    fn new(reader: R, url: Option<String>) -> Self {
        Self { reader, bytes: Vec::new(), from: 0, line: 1, url }
    }

    /// Read, not given yet.
    fn rest(&self) -> &[u8] {
        self.bytes.get(self.from..).unwrap_or_default()
    }

    fn step(&mut self, target: usize, spare: &mut Vec<u8>) -> Step {
        let mut looked_at = Looked::default();
        loop {
            match looked_at.cut(self.rest(), target) {
                Cut::At(bytes, lines) => {
                    let records = Some(looked_at.records).filter(|_| looked_at.plain);
                    return Step::Chunk(Chunk { records, ..self.give(bytes, lines, spare) });
                }
                Cut::Include(length) => return self.include(length),
                Cut::More if looked_at.record_bytes(self.rest()) > limits::LDIF_RECORD => {
                    return self.fail(&looked_at, LdifFault::TooLong(limits::LDIF_RECORD), spare);
                }
                Cut::More => {}
            }
            match self.read() {
                Ok(true) => {}
                Ok(false) if self.rest().is_empty() => return Step::End,
                Ok(false) => {
                    // The last line may lack its end.
                    if looked_at.ends_in_include(self.rest()) {
                        return match looked_at.line_start {
                            0 => self.include(self.rest().len()),
                            start => Step::Chunk(self.give(start, looked_at.lines, spare)),
                        };
                    }
                    let lines = looked_at.lines + 1;
                    return Step::Chunk(self.give(self.rest().len(), lines, spare));
                }
                Err(error) => return self.fail(&looked_at, LdifFault::Io(error), spare),
            }
        }
    }

    /// Reads more; false at the end.
    fn read(&mut self) -> io::Result<bool> {
        self.bytes.drain(..self.from);
        self.from = 0;
        loop {
            match self.reader.fill_buf() {
                Ok([]) => return Ok(false),
                Ok(available) => {
                    let length = available.len();
                    self.bytes.extend_from_slice(available);
                    self.reader.consume(length);
                    return Ok(true);
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
    }

    fn give(&mut self, bytes: usize, lines: u64, spare: &mut Vec<u8>) -> Chunk {
        let mut given = std::mem::take(spare);
        given.extend_from_slice(self.rest().get(..bytes).unwrap_or_default());
        self.from += bytes;
        let line = self.line;
        self.line += lines;
        Chunk { bytes: given, line, file: self.url.clone(), records: None }
    }

    fn include(&mut self, length: usize) -> Step {
        let place = SourcePosition { line: self.line, file: self.url.clone() };
        let line = self.rest().get(INCLUDE.len()..length).unwrap_or_default();
        let url = String::from_utf8_lossy(line.trim_ascii()).into_owned();
        self.from += length;
        self.line += 1;
        Step::Include { url, place }
    }

    /// Gives the whole records there are; the fault comes again with the next step.
    fn fail(&mut self, looked_at: &Looked, fault: LdifFault, spare: &mut Vec<u8>) -> Step {
        if looked_at.whole > 0 {
            return Step::Chunk(self.give(looked_at.whole, looked_at.whole_lines, spare));
        }
        let place = SourcePosition { line: self.line + looked_at.lines, file: self.url.clone() };
        Step::Failed(place.error(fault))
    }
}

const INCLUDE: &[u8] = b"include:";
const DN: &[u8] = b"dn:";

fn is_include(line: &[u8]) -> bool {
    line.get(..INCLUDE.len()).is_some_and(|start| start.eq_ignore_ascii_case(INCLUDE))
}

/// How far a level's bytes have been looked at.
struct Looked {
    state: State,
    /// Where the line to look at begins, and how many come before it.
    line_start: usize,
    lines: u64,
    /// Bytes and lines of whole records.
    whole: usize,
    whole_lines: u64,
    /// Records that have begun, counted while they all begin with a DN.
    records: u64,
    plain: bool,
}

impl Default for Looked {
    fn default() -> Self {
        Self {
            state: State::Between,
            line_start: 0,
            lines: 0,
            whole: 0,
            whole_lines: 0,
            records: 0,
            plain: true,
        }
    }
}

impl Looked {
    fn cut(&mut self, bytes: &[u8], target: usize) -> Cut {
        let rest = bytes.get(self.line_start..).unwrap_or_default();
        let begin = self.line_start;
        for end in memchr::memchr_iter(b'\n', rest) {
            let line = bytes.get(self.line_start..begin + end).unwrap_or_default();
            match (line, self.state) {
                ([] | [b'\r'], _) => {
                    self.state = State::Between;
                    self.whole = begin + end + 1;
                    self.whole_lines = self.lines + 1;
                    if self.whole >= target {
                        return Cut::At(self.whole, self.whole_lines);
                    }
                }
                ([b'#', ..], State::Between) => self.state = State::InComment,
                ([b' ' | b'#', ..], State::InComment) => {}
                (line, State::Between | State::InComment) if is_include(line) => {
                    return match self.line_start {
                        0 => Cut::Include(begin + end + 1),
                        start => Cut::At(start, self.lines),
                    };
                }
                (line, State::Between) => {
                    self.records += 1;
                    self.plain &= line.get(..DN.len()).is_some_and(|start| start.eq_ignore_ascii_case(DN));
                    self.state = State::InRecord;
                }
                (_, State::InRecord) => {}
                (_, State::InComment) => {
                    self.plain = false;
                    self.state = State::InRecord;
                }
            }
            self.line_start = begin + end + 1;
            self.lines += 1;
        }
        Cut::More
    }

    fn ends_in_include(&self, bytes: &[u8]) -> bool {
        self.state != State::InRecord && bytes.get(self.line_start..).is_some_and(is_include)
    }

    /// Bytes of the record that is not whole yet.
    fn record_bytes(&self, bytes: &[u8]) -> usize {
        bytes.len() - self.whole
    }
}

impl<R> fmt::Debug for Chunks<R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chunks").field("line", &self.base.line).finish_non_exhaustive()
    }
}
