//! Reading compressed files (`-z`), by pure Rust decoders in this process: no host needs a
//! program for it, and a file that was opened beneath the export stays the file that is read.
use flate2::bufread::GzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};
use std::io::{self, BufRead, Read};

/// Enough of the front of a file to tell how it is compressed.
const MAGIC_BYTES: usize = 32;
/// What is read at once of a gzip file.
const GZIP_BYTES: usize = 32 << 10;
/// The most memory the window of an xz stream may ask for.
const XZ_MEMORY_KIB_MAX: u32 = 128 << 10;

/// What is in `file`, decompressed if its first bytes say that it is compressed.
///
/// # Errors
/// What reading meets, and [`io::ErrorKind::Unsupported`] where the first bytes or the end of `path`
/// say that it is compressed in a form that has no decoder here.
pub fn reader<'a>(mut file: impl Read + 'a, path: &[u8]) -> io::Result<Box<dyn Read + 'a>> {
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
        [0x1f, 0x8b, ..] => Box::new(Gzip::new(whole)),
        [b'B', b'Z', b'h', ..] => Box::new(bzip2::read::MultiBzDecoder::new(whole)),
        [0xfd, b'7', b'z', b'X', b'Z', 0, ..] => {
            Box::new(lzma_rust2::XzReader::new_mem_limit(whole, true, XZ_MEMORY_KIB_MAX))
        }
        // A skippable frame in front, as pzstd writes one, says nothing of the form behind it.
        [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => {
            Box::new(Zstd::new(whole))
        }
        head if is_of_unknown_form(head, path) => return Err(io::ErrorKind::Unsupported.into()),
        _ => Box::new(whole),
    })
}

/// Ends of names of files that are compressed in other forms. Of these brotli has no mark in front.
const UNKNOWN_ENDS: [&[u8]; 7] = [b".br", b".lzma", b".lz4", b".lz", b".lzo", b".sz", b".Z"];

/// Whether a file is compressed in a form that has no decoder here.
fn is_of_unknown_form(head: &[u8], path: &[u8]) -> bool {
    let is_marked = match head {
        // LZ4, and its older form.
        [0x04, 0x22, 0x4d, 0x18, ..] | [0x02, 0x21, 0x4c, 0x18, ..] => true,
        // compress, and the others of its time that gzip knows.
        [0x1f, 0x9d | 0xa0 | 0x1e, ..] => true,
        // Zip, 7z, rar.
        [b'P', b'K', 3, 4, ..] | [b'7', b'z', 0xbc, 0xaf, 0x27, 0x1c, ..] => true,
        [b'R', b'a', b'r', b'!', 0x1a, 7, ..] => true,
        // lzip, lzop, framed snappy.
        [b'L', b'Z', b'I', b'P', ..] | [0x89, b'L', b'Z', b'O', 0, ..] => true,
        [0xff, 0x06, 0, 0, b's', b'N', b'a', b'P', b'p', b'Y', ..] => true,
        // zstd before its form was fixed.
        [0x1e | 0x22..=0x27, 0xb5, 0x2f, 0xfd, ..] => true,
        head => is_lzma(head),
    };
    is_marked || (!is_text(head) && UNKNOWN_ENDS.iter().any(|end| path.ends_with(end)))
}

/// Whether a file begins as those of `lzma` do, which have no magic number: one byte of properties,
/// of which only one value is in use, a dictionary of 2ⁿ or 2ⁿ + 2ⁿ⁻¹ bytes, and a length that is
/// unknown or below 256 GiB.
fn is_lzma(head: &[u8]) -> bool {
    let Some((&[0x5d, a, b, c, d], rest)) = head.split_first_chunk() else { return false };
    let Some(length) = rest.first_chunk() else { return false };
    let (dictionary, length) = (u32::from_le_bytes([a, b, c, d]), u64::from_le_bytes(*length));
    let bits = (dictionary.count_ones(), dictionary.leading_zeros() + dictionary.trailing_zeros());
    let is_usual = dictionary == u32::MAX || matches!(bits, (1, _) | (2, 30));
    is_usual && (length == u64::MAX || length < 1 << 38)
}

/// Whether the front of a file could be that of a text in UTF-8.
fn is_text(head: &[u8]) -> bool {
    let end = match std::str::from_utf8(head) {
        Err(error) if error.error_len().is_some() => return false,
        // A character that is cut by the end.
        Err(error) => error.valid_up_to(),
        Ok(text) => text.len(),
    };
    let is_control = |byte: &u8| byte.is_ascii_control() && !byte.is_ascii_whitespace();
    !head[..end].iter().any(is_control)
}

/// All members of a gzip file, one after the other, and zeros behind them, with which a last block may be filled.
struct Gzip<R>(Option<GzDecoder<io::BufReader<R>>>);

impl<R: Read> Gzip<R> {
    fn new(source: R) -> Self {
        Self(Some(GzDecoder::new(io::BufReader::with_capacity(GZIP_BYTES, source))))
    }

    /// What is behind a member.
    fn behind(mut source: io::BufReader<R>) -> io::Result<Self> {
        loop {
            let head = source.fill_buf()?;
            let zeros = head.iter().take_while(|byte| **byte == 0).count();
            match head {
                [] => return Ok(Self(None)),
                [0, ..] => source.consume(zeros),
                [0x1f, ..] => return Ok(Self(Some(GzDecoder::new(source)))),
                _ => return Err(io::Error::new(io::ErrorKind::InvalidData, "behind its end")),
            }
        }
    }
}

impl<R: Read> Read for Gzip<R> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        while let Some(decoder) = &mut self.0 {
            let have = decoder.read(out)?;
            if have > 0 || out.is_empty() {
                return Ok(have);
            }
            let source = self.0.take().map(GzDecoder::into_inner);
            *self = source.map(Self::behind).transpose()?.unwrap_or(Self(None));
        }
        Ok(0)
    }
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
            // One block at a time, so what is decoded and not read yet stays small.
            let one = BlockDecodingStrategy::UptoBlocks(1);
            let decoded = self.decoder.decode_blocks(&mut self.source, one);
            decoded.map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))?;
        }
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;
    use std::io::Write;
    use std::process::{Command, Stdio};

    /// What the system's compressor makes of `data`; `None` where it is not installed.
    pub fn compressed(program: &str, data: &[u8]) -> Option<Vec<u8>> {
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
        read_named(data, "/file")
    }

    fn read_named(data: &[u8], path: &str) -> io::Result<Vec<u8>> {
        let mut out = Vec::new();
        reader(data, path.as_bytes())?.read_to_end(&mut out)?;
        Ok(out)
    }

    #[test]
    fn skippable_frame_in_front_of_zstd_is_passed_over() {
        let data = b"needle here\n".repeat(1000);
        let Some(frame) = compressed("zstd", &data) else {
            let _ = writeln!(io::stderr(), "SKIPPED 1 test: zstd is not installed");
            return;
        };
        // As pzstd writes it: the length of the frame that follows.
        let skippable = |kind: u8, text: &[u8]| {
            [&[kind, 0x2a, 0x4d, 0x18], &(text.len() as u32).to_le_bytes()[..], text].concat()
        };
        for kind in [0x50, 0x55, 0x5f] {
            let front = skippable(kind, &(frame.len() as u32).to_le_bytes());
            assert_eq!(read(&[&front[..], &frame].concat()).unwrap(), data);
            let twice = [&front[..], &frame, &front, &frame].concat();
            assert_eq!(read(&twice).unwrap(), data.repeat(2));
            assert!(read(&[&front[..], b"\x04\x22\x4d\x18"].concat()).is_err(), "LZ4 behind it");
            assert!(read(&front[..front.len() - 1]).is_err(), "a frame that is cut");
        }
    }

    /// As gzip, which reads what is padded, and takes something else behind its end for an error.
    #[test]
    fn zeros_behind_gzip_are_padding_and_other_bytes_are_damage() {
        let data = b"needle here\n".repeat(1000);
        let Some(file) = compressed("gzip", &data) else { return };
        let zeros = [0; 100_000];
        assert_eq!(read(&[&file[..], &zeros].concat()).unwrap(), data);
        assert_eq!(read(&[&file[..], &zeros, &file].concat()).unwrap(), data.repeat(2));
        for behind in [&b"garbage"[..], b"\0\0garbage"] {
            let error = read(&[&file[..], behind].concat()).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidData);
        }
        let cut = read(&[&file[..], &file[..file.len() - 1]].concat()).unwrap_err();
        assert_eq!(cut.kind(), io::ErrorKind::UnexpectedEof);
    }

    #[test]
    fn forms_without_a_decoder_are_refused() {
        let lzma = |dictionary: u32, length: u64| {
            [&[0x5d], &dictionary.to_le_bytes()[..], &length.to_le_bytes(), b"\0rest"].concat()
        };
        let refused = |data: &[u8], path: &str| {
            let unsupported = |error: &io::Error| error.kind() == io::ErrorKind::Unsupported;
            read_named(data, path).is_err_and(|error| unsupported(&error))
        };
        for data in [
            &b"\x04\x22\x4d\x18@@"[..],
            b"\x02\x21\x4c\x18@@",
            b"\x1f\x9d\x90a",
            b"LZIP\x01",
            b"\x89LZO\0\r\n\x1a\n",
            b"\xff\x06\0\0sNaPpY",
            b"\x27\xb5\x2f\xfd",
            &lzma(1 << 23, u64::MAX),
            &lzma(3 << 22, 1 << 20),
            b"PK\x03\x04\x14\0",
            b"7z\xbc\xaf\x27\x1c\0\x04",
            b"Rar!\x1a\x07\x01\0",
        ] {
            assert!(refused(data, "/file"), "{data:?}");
        }
        for data in [lzma(1 << 23, 1 << 40), lzma(12345, 7), lzma(0, 7), b"]\0\0".to_vec()] {
            assert!(!refused(&data, "/file"), "{data:?}");
        }
        // Brotli has no mark: the name has to say it, and a text is none.
        let brotli = b"\x1b\xff\x03\0\xa4\xc0";
        assert!(refused(brotli, "/log.br") && !refused(brotli, "/log"));
        for text in ["", "bom dia\n", "ol\u{e1}\tmundo\r\n", "]text"] {
            for path in ["/pt.br", "/a.lzma", "/b.Z"] {
                assert!(!refused(text.as_bytes(), path), "{text} {path}");
            }
        }
        // A character may be cut where the front ends.
        let cut = format!("{}\u{e1}", "x".repeat(MAGIC_BYTES - 1));
        assert!(!refused(cut.as_bytes(), "/pt.br"));
    }

    #[test]
    fn forms_of_installed_compressors_are_refused_or_read() {
        let data = b"needle here\n".repeat(1000);
        for (program, end) in [
            ("lzma", "lzma"),
            ("lz4", "lz4"),
            ("brotli", "br"),
            ("compress", "Z"),
            ("lzip", "lz"),
            ("lzop", "lzo"),
        ] {
            let Some(file) = compressed(program, &data).filter(|file| !file.is_empty()) else {
                continue;
            };
            let read = read_named(&file, &format!("/log.{end}"));
            assert_eq!(
                read.map_err(|error| error.kind()),
                Err(io::ErrorKind::Unsupported),
                "{program}"
            );
        }
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
