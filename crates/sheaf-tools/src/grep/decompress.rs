//! Reading compressed files (`-z`), by pure Rust decoders in this process: no host needs a
//! program for it, and a file that was opened beneath the export stays the file that is read.
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, Read};

/// Enough of the front of a file to tell how it is compressed.
const MAGIC_BYTES: usize = 6;
/// The most memory the window of an xz stream may ask for.
const XZ_MEMORY_KIB_MAX: u32 = 128 << 10;

/// What is in `file`, decompressed if its first bytes say that it is compressed.
pub fn reader<'a>(mut file: impl Read + 'a) -> io::Result<Box<dyn Read + 'a>> {
    let mut magic = [0; MAGIC_BYTES];
    let mut have = 0;
    while have < magic.len() {
        match file.read(&mut magic[have..]) {
            Ok(0) => break,
            Ok(more) => have += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    let whole = io::Cursor::new(magic).take(have as u64).chain(file);
    Ok(match &magic[..have] {
        [0x1f, 0x8b, ..] => Box::new(flate2::read::MultiGzDecoder::new(whole)),
        [b'B', b'Z', b'h', ..] => Box::new(bzip2::read::MultiBzDecoder::new(whole)),
        [0xfd, b'7', b'z', b'X', b'Z', 0] => {
            Box::new(lzma_rust2::XzReader::new_mem_limit(whole, true, XZ_MEMORY_KIB_MAX))
        }
        [0x28, 0xb5, 0x2f, 0xfd, ..] => Box::new(Zstd::new(whole)),
        _ => Box::new(whole),
    })
}

/// All frames of a zstd file, one after the other.
struct Zstd<R> {
    source: io::BufReader<R>,
    decoder: FrameDecoder,
    /// Whether the decoder holds a frame whose end has not been read.
    in_frame: bool,
}

impl<R: Read> Zstd<R> {
    fn new(source: R) -> Self {
        let (source, decoder) = (io::BufReader::new(source), FrameDecoder::new());
        Self { source, decoder, in_frame: false }
    }

    /// Starts on the next frame; `false` at the end of the file.
    fn next_frame(&mut self) -> io::Result<bool> {
        while !self.source.fill_buf()?.is_empty() {
            match self.decoder.reset(&mut self.source) {
                Ok(()) => return Ok(true),
                Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame {
                    length,
                    ..
                })) => {
                    let length = u64::from(length);
                    if io::copy(&mut (&mut self.source).take(length), &mut io::sink())? < length {
                        return Err(io::ErrorKind::UnexpectedEof.into());
                    }
                }
                Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            }
        }
        Ok(false)
    }

    fn check(&self) -> io::Result<()> {
        let said = self.decoder.get_checksum_from_data();
        let same = said.is_none() || said == self.decoder.get_calculated_checksum();
        if same { Ok(()) } else { Err(io::ErrorKind::InvalidData.into()) }
    }
}

impl<R: Read> Read for Zstd<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame {
                if !self.next_frame()? {
                    return Ok(0);
                }
                self.in_frame = true;
            }
            if self.decoder.can_collect() > 0 || out.is_empty() {
                return self.decoder.read(out);
            }
            if self.decoder.is_finished() {
                self.check()?;
                self.in_frame = false;
                continue;
            }
            let one = BlockDecodingStrategy::UptoBlocks(1);
            let decoded = self.decoder.decode_blocks(&mut self.source, one);
            decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// What the system's compressor makes of `data`; `None` where it is not installed.
    fn compressed(program: &str, data: &[u8]) -> Option<Vec<u8>> {
        let mut child = Command::new(program)
            .arg("-c")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .ok()?;
        child.stdin.take()?.write_all(data).ok()?;
        Some(child.wait_with_output().ok()?.stdout)
    }

    fn read(data: &[u8]) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        reader(data)?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn compressed_and_concatenated_files_are_decompressed() {
        let data: Vec<u8> =
            (0..60_000u32).flat_map(|n| format!("line {n}\n").into_bytes()).collect();
        for program in ["gzip", "bzip2", "xz", "zstd"] {
            let Some(mut file) = compressed(program, &data) else {
                // The harness would keep what `eprintln!` prints.
                let _ = writeln!(io::stderr(), "SKIPPED 1 test: {program} is not installed");
                continue;
            };
            assert_eq!(read(&file).unwrap(), data, "{program}");
            assert!(read(&file[..file.len() / 2]).is_err(), "a truncated {program} file");
            file.extend_from_within(..);
            assert_eq!(read(&file).unwrap(), [&data[..], &data].concat(), "{program} twice");
        }
    }

    #[test]
    fn other_files_are_read_as_they_are() {
        for data in [&b""[..], b"x", b"plain text\n", b"BZ", &[0x1f]] {
            assert_eq!(read(data).unwrap(), data);
        }
    }

    proptest::proptest! {
        #[test]
        fn garbage_behind_a_magic_number_never_panics(
            which in 0usize..4,
            rest in proptest::collection::vec(proptest::num::u8::ANY, 0..200),
        ) {
            let magics: [&[u8]; 4] =
                [&[0x1f, 0x8b, 8, 0], b"BZh9", &[0xfd, b'7', b'z', b'X', b'Z', 0], &[0x28, 0xb5, 0x2f, 0xfd]];
            let _ = read(&[magics[which], &rest].concat());
        }
    }
}
