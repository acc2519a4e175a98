use super::*;

fn names(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).unwrap();
    let mut names: Vec<_> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_file_is_put_aside_when_it_is_large_and_the_oldest_goes() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let rotation = LogRotation { keep: 2, bytes: Some(10), age: None };
    let mut file = LogFile::open(&path, Some(rotation)).unwrap();
    for n in 0..5 {
        file.append(format!("line {n}\n").as_bytes()).unwrap();
    }
    assert_eq!(names(directory.path()), ["log", "log.01", "log.02"]);
    let read = |name| std::fs::read_to_string(directory.path().join(name)).unwrap();
    assert_eq!((read("log"), read("log.01")), ("line 4\n".to_owned(), "line 3\n".to_owned()));
    assert_eq!(read("log.02"), "line 2\n");
}

#[test]
fn a_file_is_put_aside_when_it_is_old() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let rotation = LogRotation { keep: 1, bytes: None, age: Some(Duration::ZERO) };
    let mut file = LogFile::open(&path, Some(rotation)).unwrap();
    file.append(b"one\n").unwrap();
    file.append(b"two\n").unwrap();
    assert_eq!(names(directory.path()), ["log", "log.01"]);
}

#[test]
fn a_file_that_was_moved_is_followed_by_a_new_one() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut file = LogFile::open(&path, None).unwrap();
    file.append(b"one\n").unwrap();
    std::fs::rename(&path, directory.path().join("old")).unwrap();
    file.follow();
    file.append(b"two\n").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
    assert_eq!(std::fs::read_to_string(directory.path().join("old")).unwrap(), "one\n");
}

#[test]
fn a_clock_that_is_set_back_does_not_hide_that_a_file_was_moved() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let mut file = LogFile::open(&path, None).unwrap();
    file.looked += Duration::from_secs(86_400);
    std::fs::rename(&path, directory.path().join("old")).unwrap();
    file.append(b"one\n").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "one\n");
}

/// Also for root, a folder that is gone takes no file.
#[test]
fn a_file_that_cannot_be_had_again_is_reported_once() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, away) = (directory.path().join("logs"), directory.path().join("away"));
    std::fs::create_dir(&folder).unwrap();
    let path = folder.join("log");
    // It is full, too.
    let rotation = LogRotation { keep: 1, bytes: Some(1), age: None };
    let mut file = LogFile::open(&path, Some(rotation)).unwrap();
    file.append(b"zero\n").unwrap();
    std::fs::rename(&folder, &away).unwrap();
    file.follow();
    file.append(b"one\n").unwrap();
    let trouble = file.take_trouble().unwrap();
    assert!(trouble.contains("logs/log was moved") && trouble.contains("No such file"), "{trouble}");
    file.follow();
    assert_eq!(file.take_trouble(), None);
    assert_eq!(std::fs::read_to_string(away.join("log")).unwrap(), "zero\none\n");
    std::fs::create_dir(&folder).unwrap();
    file.follow();
    file.append(b"two\n").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "two\n");
    assert_eq!(file.take_trouble(), None);
}

#[test]
fn a_file_in_the_place_of_its_directory_is_reported() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, away) = (directory.path().join("logs"), directory.path().join("away"));
    std::fs::create_dir(&folder).unwrap();
    let mut file = LogFile::open(&folder.join("log"), None).unwrap();
    std::fs::rename(&folder, &away).unwrap();
    std::fs::write(&folder, "").unwrap();
    file.follow();
    let trouble = file.take_trouble().unwrap();
    assert!(trouble.contains("logs/log was moved") && trouble.contains("Not a directory"), "{trouble}");
}

/// A directory stands where the file should go, which no user can rename a file to.
#[test]
fn a_file_that_cannot_be_put_aside_is_reported_once_and_tried_again() {
    let directory = tempfile::tempdir().unwrap();
    let (path, in_the_way) = (directory.path().join("log"), directory.path().join("log.01"));
    std::fs::create_dir(&in_the_way).unwrap();
    let rotation = LogRotation { keep: 1, bytes: Some(10), age: None };
    let mut file = LogFile::open(&path, Some(rotation)).unwrap();
    for n in 0..3 {
        file.append(format!("line {n}\n").as_bytes()).unwrap();
        assert_eq!(file.take_trouble().is_some(), n == 1);
    }
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "line 0\nline 1\nline 2\n");
    file.stuck = file.stuck.map(|since| since.saturating_sub(STUCK_PAUSE));
    file.append(b"line 3\n").unwrap();
    assert_eq!(file.take_trouble(), None);
    std::fs::remove_dir(&in_the_way).unwrap();
    file.append(b"line 4\n").unwrap();
    assert_eq!(names(directory.path()), ["log"]);
    file.stuck = file.stuck.map(|since| since.saturating_sub(STUCK_PAUSE));
    file.append(b"line 5\n").unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), "line 5\n");
    assert_eq!(names(directory.path()), ["log", "log.01"]);
}

/// As by another program that puts it aside, in the second in which the server does not look.
#[test]
fn a_full_file_that_somebody_has_moved_is_not_put_aside() {
    for is_replaced in [false, true] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("log");
        let rotation = LogRotation { keep: 2, bytes: Some(10), age: None };
        let mut file = LogFile::open(&path, Some(rotation)).unwrap();
        file.append(b"line 0\n").unwrap();
        std::fs::rename(&path, directory.path().join("moved")).unwrap();
        if is_replaced {
            std::fs::write(&path, "").unwrap();
        }
        file.append(b"line 1\n").unwrap();
        assert_eq!(file.take_trouble(), None, "{is_replaced}");
        assert_eq!(names(directory.path()), ["log", "moved"], "{is_replaced}");
        file.append(b"line 2\n").unwrap();
        assert_eq!(names(directory.path()), ["log", "log.01", "moved"], "{is_replaced}");
    }
}

#[test]
fn a_full_file_that_cannot_be_had_again_is_reported_once() {
    let directory = tempfile::tempdir().unwrap();
    let (folder, away) = (directory.path().join("logs"), directory.path().join("away"));
    std::fs::create_dir(&folder).unwrap();
    let rotation = LogRotation { keep: 1, bytes: Some(10), age: None };
    let mut file = LogFile::open(&folder.join("log"), Some(rotation)).unwrap();
    std::fs::rename(&folder, &away).unwrap();
    for n in 0..3 {
        file.append(b"a line\n").unwrap();
        file.follow();
        let trouble = file.take_trouble();
        assert_eq!(trouble.is_some(), n == 0, "{trouble:?}");
    }
}

#[test]
fn tries_that_fail_move_no_other_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("log");
    let at = |name: &str| directory.path().join(name);
    std::fs::write(at("log.01"), "older\n").unwrap();
    let rotation = LogRotation { keep: 4, bytes: Some(1), age: None };
    let mut file = LogFile::open(&path, Some(rotation)).unwrap();
    file.append(b"one\n").unwrap();
    std::fs::remove_file(&path).unwrap();
    for _ in 0..5 {
        file.put_aside(time_of_day());
        // What was opened in its place goes, too: there is nothing to rename in the next try.
        let _ = std::fs::remove_file(&path);
    }
    assert_eq!(std::fs::read_to_string(at("log.02")).unwrap(), "older\n");
}

#[test]
fn a_pipe_has_nobody_wait() {
    let directory = tempfile::tempdir().unwrap();
    let pipe = directory.path().join("pipe");
    rustix::fs::mkfifoat(rustix::fs::CWD, &pipe, rustix::fs::Mode::from_raw_mode(0o600)).unwrap();
    let unread = LogFile::open(&pipe, None).unwrap_err().source;
    assert_eq!(unread.raw_os_error(), Some(rustix::io::Errno::NXIO.raw_os_error()));
    let _reader = OpenOptions::new().read(true).write(true).open(&pipe).unwrap();
    let mut file = LogFile::open(&pipe, None).unwrap();
    let lines = vec![b'\n'; 1 << 20];
    assert_eq!(file.append(&lines).unwrap_err().kind(), io::ErrorKind::WouldBlock);
}

#[test]
fn a_full_disk_is_told_and_outlived() {
    let mut file = LogFile::open(Path::new("/dev/full"), None).unwrap();
    let error = file.append(b"one\n").unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull);
    assert!(file.append(b"two\n").is_err());
}
