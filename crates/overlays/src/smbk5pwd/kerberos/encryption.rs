//! Kerberos' encryption types on AES: keys made of passwords, encryption and its reverse (RFC 3961, RFC 3962, RFC 8009).

use aes::cipher::{BlockCipherDecrypt as _, BlockCipherEncrypt as _, KeyInit as _};
use aes::{Aes128, Aes256, Block};
use hmac::{Hmac, Mac as _};
use pbkdf2::pbkdf2_hmac;
use sha1::Sha1;
use sha2::{Sha256, Sha384};
use zeroize::Zeroizing;

const BLOCK: usize = 16;
/// The last octet of the constants of which keys are derived (RFC 3961 section 5.3).
const FOR_ENCRYPTION: u8 = 0xaa;
const FOR_INTEGRITY: u8 = 0x55;

type Secret = Zeroizing<Vec<u8>>;

#[derive(Copy, Clone, Debug, PartialEq, Eq)]
pub(in super::super) enum EncryptionType {
    Aes128Sha1,
    Aes256Sha1,
    Aes128Sha256,
    Aes256Sha384,
}

impl EncryptionType {
    const ALL: [Self; 4] = [Self::Aes128Sha1, Self::Aes256Sha1, Self::Aes128Sha256, Self::Aes256Sha384];
    /// What MIT's KDC makes of its own accord.
    pub(in super::super) const USUAL: [Self; 2] = [Self::Aes256Sha1, Self::Aes128Sha1];

    pub(in super::super) fn name(self) -> &'static str {
        match self {
            Self::Aes128Sha1 => "aes128-cts-hmac-sha1-96",
            Self::Aes256Sha1 => "aes256-cts-hmac-sha1-96",
            Self::Aes128Sha256 => "aes128-cts-hmac-sha256-128",
            Self::Aes256Sha384 => "aes256-cts-hmac-sha384-192",
        }
    }

    /// By its name or one of the short ones that krb5.conf knows.
    pub(in super::super) fn named(name: &str) -> Option<Self> {
        let short = |own: Self| match own {
            Self::Aes128Sha1 => ["aes128-cts", "aes128-sha1"],
            Self::Aes256Sha1 => ["aes256-cts", "aes256-sha1"],
            Self::Aes128Sha256 => ["aes128-sha2"; 2],
            Self::Aes256Sha384 => ["aes256-sha2"; 2],
        };
        let is_it = |own: &Self| {
            own.name().eq_ignore_ascii_case(name) || short(*own).iter().any(|s| s.eq_ignore_ascii_case(name))
        };
        Self::ALL.into_iter().find(is_it)
    }

    /// IANA's number of it.
    pub(super) fn number(self) -> u16 {
        match self {
            Self::Aes128Sha1 => 17,
            Self::Aes256Sha1 => 18,
            Self::Aes128Sha256 => 19,
            Self::Aes256Sha384 => 20,
        }
    }

    pub(super) fn numbered(number: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|own| own.number() == number)
    }

    /// The octets of a key.
    pub(super) fn key_length(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes128Sha256 => 16,
            Self::Aes256Sha1 | Self::Aes256Sha384 => 32,
        }
    }

    /// The iterations of PBKDF2 where nobody says another number.
    pub(super) fn iterations(self) -> u32 {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => 4096,
            Self::Aes128Sha256 | Self::Aes256Sha384 => 32_768,
        }
    }

    /// The key of a password (string-to-key).
    pub(super) fn key_of(self, password: &[u8], salt: &[u8], iterations: u32) -> Secret {
        let mut intermediate = Zeroizing::new(vec![0; self.key_length()]);
        let named = [self.name().as_bytes(), &[0], salt].concat();
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => {
                pbkdf2_hmac::<Sha1>(password, salt, iterations, &mut intermediate);
            }
            Self::Aes128Sha256 => {
                pbkdf2_hmac::<Sha256>(password, &named, iterations, &mut intermediate);
            }
            Self::Aes256Sha384 => {
                pbkdf2_hmac::<Sha384>(password, &named, iterations, &mut intermediate);
            }
        }
        self.derived(&intermediate, b"kerberos", self.key_length())
    }

    /// Encrypts with integrity, by a key of this type.
    pub(super) fn encrypt(self, key: &[u8], usage: u32, confounder: [u8; BLOCK], plain: &[u8]) -> Vec<u8> {
        let whole = Zeroizing::new([&confounder[..], plain].concat());
        let (encrypting, integrity) = self.working_keys(key, usage);
        let mut out = encrypt_stealing(&Cipher::new(&encrypting), &whole);
        let mac = self.integrity(&integrity, &whole, &out);
        out.extend_from_slice(&mac);
        out
    }

    /// What was encrypted; `None` for another key or usage, and for what is damaged.
    pub(super) fn decrypt(self, key: &[u8], usage: u32, encrypted: &[u8]) -> Option<Secret> {
        let length = encrypted.len().checked_sub(self.mac_length()).filter(|length| *length >= BLOCK)?;
        let (encrypted, mac) = encrypted.split_at_checked(length)?;
        let (encrypting, integrity) = self.working_keys(key, usage);
        let whole = decrypt_stealing(&Cipher::new(&encrypting), encrypted);
        if *self.integrity(&integrity, &whole, encrypted) != *mac {
            return None;
        }
        Some(Zeroizing::new(whole.get(BLOCK..)?.to_vec()))
    }

    /// The keys for encryption and for integrity.
    fn working_keys(self, key: &[u8], usage: u32) -> (Secret, Secret) {
        let constant = |last: u8| [&usage.to_be_bytes()[..], &[last]].concat();
        let integrity_length = match self {
            Self::Aes256Sha384 => 24,
            own => own.key_length(),
        };
        let encrypting = self.derived(key, &constant(FOR_ENCRYPTION), self.key_length());
        (encrypting, self.derived(key, &constant(FOR_INTEGRITY), integrity_length))
    }

    fn mac_length(self) -> usize {
        match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => 12,
            Self::Aes128Sha256 => 16,
            Self::Aes256Sha384 => 24,
        }
    }

    fn integrity(self, key: &[u8], plain: &[u8], encrypted: &[u8]) -> Secret {
        let mut mac = match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => self.mac(key, &[plain]),
            // The cipher's state before the first block is all zeros.
            Self::Aes128Sha256 | Self::Aes256Sha384 => self.mac(key, &[&[0; BLOCK], encrypted]),
        };
        mac.truncate(self.mac_length());
        mac
    }

    /// A key derived from another one (DK of RFC 3961 section 5.1, KDF-HMAC-SHA2 of RFC 8009 section 3).
    fn derived(self, key: &[u8], constant: &[u8], length: usize) -> Secret {
        let mut out = match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => {
                let cipher = Cipher::new(key);
                let mut block = n_fold(constant);
                let mut out = Vec::with_capacity(length.next_multiple_of(BLOCK));
                while out.len() < length {
                    cipher.encrypt(&mut block);
                    out.extend_from_slice(&block);
                }
                Zeroizing::new(out)
            }
            Self::Aes128Sha256 | Self::Aes256Sha384 => {
                let bits = u32::try_from(length * 8).unwrap_or(u32::MAX);
                self.mac(key, &[&1u32.to_be_bytes(), constant, &[0], &bits.to_be_bytes()])
            }
        };
        out.truncate(length);
        out
    }

    fn mac(self, key: &[u8], parts: &[&[u8]]) -> Secret {
        macro_rules! mac {
            ($hash:ty) => {
                // HMAC takes a key of any length.
                Hmac::<$hash>::new_from_slice(key).map_or_else(
                    |_| Vec::new(),
                    |mut mac| {
                        parts.iter().for_each(|part| mac.update(part));
                        mac.finalize().into_bytes().to_vec()
                    },
                )
            };
        }
        Zeroizing::new(match self {
            Self::Aes128Sha1 | Self::Aes256Sha1 => mac!(Sha1),
            Self::Aes128Sha256 => mac!(Sha256),
            Self::Aes256Sha384 => mac!(Sha384),
        })
    }
}

enum Cipher {
    Aes128(Box<Aes128>),
    Aes256(Box<Aes256>),
}

impl Cipher {
    /// For a key of 16 or 32 octets.
    fn new(key: &[u8]) -> Self {
        Aes128::new_from_slice(key).map_or_else(
            |_| {
                let mut long = Zeroizing::new([0; 32]);
                long.iter_mut().zip(key).for_each(|(to, from)| *to = *from);
                Self::Aes256(Box::new(Aes256::new(&(*long).into())))
            },
            |cipher| Self::Aes128(Box::new(cipher)),
        )
    }

    fn encrypt(&self, block: &mut [u8; BLOCK]) {
        let mut whole = Block::from(*block);
        match self {
            Self::Aes128(cipher) => cipher.encrypt_block(&mut whole),
            Self::Aes256(cipher) => cipher.encrypt_block(&mut whole),
        }
        *block = whole.into();
    }

    fn decrypt(&self, block: &mut [u8; BLOCK]) {
        let mut whole = Block::from(*block);
        match self {
            Self::Aes128(cipher) => cipher.decrypt_block(&mut whole),
            Self::Aes256(cipher) => cipher.decrypt_block(&mut whole),
        }
        *block = whole.into();
    }
}

/// CBC from zeros with ciphertext stealing (RFC 3962 section 5): as long as the plain text, which has a block at least.
fn encrypt_stealing(cipher: &Cipher, plain: &[u8]) -> Vec<u8> {
    let mut state = [0; BLOCK];
    let mut blocks = Vec::with_capacity(plain.len().div_ceil(BLOCK));
    for chunk in plain.chunks(BLOCK) {
        state.iter_mut().zip(chunk).for_each(|(to, from)| *to ^= from);
        cipher.encrypt(&mut state);
        blocks.push(state);
    }
    if let [.., before, last] = blocks.as_mut_slice() {
        std::mem::swap(before, last);
    }
    let mut out = blocks.concat();
    out.truncate(plain.len());
    out
}

/// The reverse of [`encrypt_stealing`], for a block at least.
fn decrypt_stealing(cipher: &Cipher, encrypted: &[u8]) -> Secret {
    let mut blocks: Vec<[u8; BLOCK]> = Vec::with_capacity(encrypted.len().div_ceil(BLOCK));
    for chunk in encrypted.chunks(BLOCK) {
        let mut block = [0; BLOCK];
        block.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        blocks.push(block);
    }
    if let [.., before, last] = blocks.as_mut_slice() {
        // The end of the last block but one was cut off: it is in the last one, where the plain text has zeros.
        let mut stolen = *before;
        cipher.decrypt(&mut stolen);
        let cut = (encrypted.len() - 1) % BLOCK + 1;
        last.iter_mut().zip(stolen).skip(cut).for_each(|(to, from)| *to = from);
        std::mem::swap(before, last);
    }
    let mut state = [0; BLOCK];
    let mut out = Zeroizing::new(Vec::with_capacity(encrypted.len()));
    for block in blocks {
        let mut plain = block;
        cipher.decrypt(&mut plain);
        out.extend(plain.iter().zip(state).map(|(one, other)| one ^ other));
        state = block;
    }
    out.truncate(encrypted.len());
    out
}

/// Stretches or folds a text to a block (RFC 3961 section 5.1): copies of it, each turned right by 13 bits more than the one before, are added
/// in ones' complement.
fn n_fold(text: &[u8]) -> [u8; BLOCK] {
    let bits = text.len() * 8;
    if bits == 0 {
        return [0; BLOCK];
    }
    let bit = |at: usize| text.get(at / 8).is_some_and(|byte| byte >> (7 - at % 8) & 1 == 1);
    let mut copies = text.len();
    while !copies.is_multiple_of(BLOCK) {
        copies += text.len();
    }
    let mut sum = 0u128;
    for block in 0..copies / BLOCK {
        let mut number = 0u128;
        for at in block * BLOCK * 8..(block + 1) * BLOCK * 8 {
            let (copy, within) = (at / bits, at % bits);
            let turned = (within + bits - 13 * copy % bits) % bits;
            number = number << 1 | u128::from(bit(turned));
        }
        let (added, carried) = sum.overflowing_add(number);
        sum = added.wrapping_add(u128::from(carried));
    }
    sum.to_be_bytes()
}

#[cfg(test)]
mod tests {
    use std::fmt::Write as _;

    use super::*;

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().fold(String::new(), |mut text, byte| {
            write!(text, "{byte:02x}").unwrap();
            text
        })
    }

    /// RFC 3961 appendix A.1.
    #[test]
    fn texts_are_folded() {
        for (text, expected) in
            [("kerberos", "6b65726265726f737b9b5b2b93132b93"), ("", "00000000000000000000000000000000")]
        {
            assert_eq!(hex(&n_fold(text.as_bytes())), expected, "{text}");
        }
    }

    /// RFC 3962 appendix B, RFC 8009 appendix A.
    #[test]
    fn keys_of_passwords() {
        use EncryptionType::{Aes128Sha1, Aes128Sha256, Aes256Sha1, Aes256Sha384};
        let athena: &[u8] = b"ATHENA.MIT.EDUraeburn";
        let salted: &[u8] =
            b"\x10\xdf\x9d\xd7\x83\xe5\xbc\x8a\xce\xa1\x73\x0e\x74\x35\x5f\x61ATHENA.MIT.EDUraeburn";
        for (kind, iterations, salt, expected) in [
            (Aes128Sha1, 1, athena, "42263c6e89f4fc28b8df68ee09799f15"),
            (Aes256Sha1, 1, athena, "fe697b52bc0d3ce14432ba036a92e65bbb52280990a2fa27883998d72af30161"),
            (Aes128Sha1, 1200, athena, "4c01cd46d632d01e6dbe230a01ed642a"),
            (Aes256Sha1, 1200, athena, "55a6ac740ad17b4846941051e1e8b0a7548d93b0ab30a8bc3ff16280382b8c2a"),
            (Aes128Sha256, 32_768, salted, "089bca48b105ea6ea77ca5d2f39dc5e7"),
            (
                Aes256Sha384,
                32_768,
                salted,
                "45bd806dbf6a833a9cffc1c94589a222367a79bc21c413718906e9f578a78467",
            ),
        ] {
            assert_eq!(hex(&kind.key_of(b"password", salt, iterations)), expected, "{kind:?} {iterations}");
        }
    }

    /// RFC 3962 appendix B.
    #[test]
    fn the_last_block_is_stolen() {
        let cipher = Cipher::new(b"chicken teriyaki");
        for (plain, expected) in [
            ("I would like the ", "c6353568f2bf8cb4d8a580362da7ff7f97"),
            (
                "I would like the General Gau's ",
                "fc00783e0efdb2c1d445d4c8eff7ed2297687268d6ecccc0c07b25e25ecfe5",
            ),
            (
                "I would like the General Gau's C",
                "39312523a78662d5be7fcbcc98ebf5a897687268d6ecccc0c07b25e25ecfe584",
            ),
        ] {
            let encrypted = encrypt_stealing(&cipher, plain.as_bytes());
            assert_eq!(hex(&encrypted), expected, "{plain}");
            assert_eq!(*decrypt_stealing(&cipher, &encrypted), plain.as_bytes());
        }
    }

    /// RFC 8009 appendix A.
    #[test]
    fn texts_are_encrypted() {
        use EncryptionType::{Aes128Sha256, Aes256Sha384};
        let key128 = 0x3705_d960_80c1_7728_a0e8_00ea_b6e0_d23c_u128.to_be_bytes();
        let key256 = [
            0x6d40_4d37_faf7_9f9d_f0d3_3568_d320_6698_u128.to_be_bytes(),
            0x00eb_4836_472e_a8a0_26d1_6b71_8246_0c52_u128.to_be_bytes(),
        ]
        .concat();
        for (kind, key, confounder, plain, expected) in [
            (
                Aes128Sha256,
                &key128[..],
                0x7e58_95ea_f267_2435_bad8_17f5_45a3_7148_u128,
                0..0u8,
                "ef85fb890bb8472f4dab20394dca781dad877eda39d50c870c0d5a0a8e48c718",
            ),
            (
                Aes128Sha256,
                &key128[..],
                0x7bca_285e_2fd4_130f_b55b_1a5c_83bc_5b24_u128,
                0..6,
                "84d7f30754ed987bab0bf3506beb09cfb55402cef7e6877ce99e247e52d16ed4421dfdf8976c",
            ),
            (
                Aes256Sha384,
                &key256[..],
                0xf764_e9fa_15c2_7647_8b2c_7d0c_4e5f_58e4_u128,
                0..0,
                "41f53fa5bfe7026d91faf9be959195a058707273a96a40f0a01960621ac612748b9bbfbe7eb4ce3c",
            ),
        ] {
            let plain: Vec<u8> = plain.collect();
            let encrypted = kind.encrypt(key, 2, confounder.to_be_bytes(), &plain);
            assert_eq!(hex(&encrypted), expected, "{kind:?} {}", plain.len());
            assert_eq!(*kind.decrypt(key, 2, &encrypted).unwrap(), plain);
        }
    }

    #[test]
    fn what_was_encrypted_comes_back() {
        for kind in EncryptionType::ALL {
            let key = vec![7; kind.key_length()];
            for length in [0, 1, 15, 16, 17, 32, 33] {
                let plain: Vec<u8> = (0..length).collect();
                let encrypted = kind.encrypt(&key, 3, [9; BLOCK], &plain);
                assert_eq!(*kind.decrypt(&key, 3, &encrypted).unwrap(), plain, "{kind:?} {length}");
                assert!(kind.decrypt(&key, 4, &encrypted).is_none(), "another usage");
                for at in [0, encrypted.len() / 2, encrypted.len() - 1] {
                    let mut damaged = encrypted.clone();
                    damaged[at] ^= 1;
                    assert!(kind.decrypt(&key, 3, &damaged).is_none(), "{kind:?} {length} {at}");
                }
                assert!(kind.decrypt(&key, 3, &encrypted[..kind.mac_length() + 15]).is_none());
            }
        }
    }

    #[test]
    fn types_have_names() {
        for (name, expected) in [
            ("aes256-cts-hmac-sha1-96", Some(18)),
            ("AES128-CTS", Some(17)),
            ("aes128-sha2", Some(19)),
            ("aes256-cts-hmac-sha384-192", Some(20)),
            ("arcfour-hmac", None),
        ] {
            assert_eq!(EncryptionType::named(name).map(EncryptionType::number), expected, "{name}");
        }
    }
}
