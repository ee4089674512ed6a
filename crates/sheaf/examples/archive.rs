//! Stores a directory in an archive of its own, lists what is archived, and prints one file of it.
//!
//!     cargo run --example archive -- DIRECTORY FILE
//!
//! The archive is in a temporary directory. A real one stays: `LocalStore::open` opens it again.
use sheaf::archive::{
    Archive, ArchivePath, ArchivedFile, Catalog, LocalStore, SaveOptions, save, write_content,
};
use std::error::Error;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("archive: {}", sheaf::one_line(&*error));
            sheaf::exit_code(&*error)
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let [directory, file] = &words[..] else { return Err("say: archive DIRECTORY FILE".into()) };

    // The log in the store says what is archived; the catalog is its sum, and can be made again.
    let place = tempfile::tempdir()?;
    let store = LocalStore::create(&place.path().join("store"))?;
    let catalog = Catalog::open(&place.path().join("catalog"))?;
    let archive = Archive::new(Arc::new(store), catalog)?;

    // "DIR/." is what is in DIR. A file that cannot be stored is an event, and the others are stored.
    let sources = [PathBuf::from(format!("{directory}/."))];
    let options = SaveOptions::of(archive.store());
    let report = save(&archive, &sources, &ArchivePath::ROOT, options, &|event| {
        eprintln!("{event:?}");
    })?;
    println!("stored {} files, {} bytes", report.stored, report.stored_bytes);

    for entry in archive.walk(&ArchivePath::ROOT)? {
        let (path, found) = entry?;
        let place = match found {
            ArchivedFile::Directory(_) => "directory",
            ArchivedFile::Member { .. } => "in a pack",
            ArchivedFile::Object(_) => "an object",
        };
        println!("{path}: {place}");
    }
    let path = ArchivePath::new(file.as_bytes()).ok_or("this is no path in an archive")?;
    write_content(&archive, &path, &mut std::io::stdout())?;
    if report.failed > 0 {
        return Err(format!("{} files were not stored", report.failed).into());
    }
    Ok(())
}
