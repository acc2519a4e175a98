use super::*;

#[test]
fn a_file_has_one_server_a_line() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("hosts");
    std::fs::write(&path, "a.example.com  the first\n\nldaps://b:1636\n").unwrap();
    let realm = Realm::parse(&format!("file://{}", path.display())).unwrap();
    assert_eq!(realm.read().unwrap().len(), 2);
    std::fs::write(&path, "\n").unwrap();
    assert!(realm.read().unwrap_err().contains("no server is named"));
    std::fs::remove_file(&path).unwrap();
    assert!(realm.read().unwrap_err().contains(&path.display().to_string()));
}
