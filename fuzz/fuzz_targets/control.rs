//! Values of controls and extended operations: decoded, encoded, decoded again.
#![no_main]

use larix_proto::control::*;
use larix_proto::extended::*;
use libfuzzer_sys::fuzz_target;

/// Whatever `$type` reads, it must read again out of what it writes.
macro_rules! round_trip {
    ($value:expr, $choice:expr; $($type:ident),* $(,)?) => {
        let mut number = 0;
        $(
            if number == $choice && let Ok(decoded) = $type::decode($value) {
                let encoded = decoded.encode();
                assert_eq!($type::decode(encoded.as_deref()), Ok(decoded));
            }
            number += 1;
        )*
        let _ = number;
    };
}

fuzz_target!(|data: &[u8]| {
    let Some((&choice, value)) = data.split_first() else { return };
    let value = (!value.is_empty()).then_some(value);
    // More numbers than either list has types.
    let choice = choice & 0x3f;
    round_trip!(value, choice;
        Assertion, AuthorizationIdentityRequest, AuthorizationIdentityResponse, DomainScope, DontUseCopy,
        ManageDsaIt, MatchedValues, NoOp, PagedResults, PasswordPolicyRequest, PasswordPolicyResponse,
        PermissiveModify, PostReadRequest, PostReadResponse, PreReadRequest, PreReadResponse,
        ProxiedAuthorization, Relax, SearchOptions, SessionTracking, SortRequest, SortResponse, Subentries,
        SyncDone, SyncRequest, SyncState, TransactionSpecification, TreeDelete, VlvRequest, VlvResponse,
        DerefRequest, DerefResponse, ProxiedAuthorizationV1, AccountUsability, AccountUsabilityRequest,
        DirSyncRequest, DirSyncResponse, EntryChangeNotification, PersistentSearch,
    );
    round_trip!(value, choice; Cancel, EndTransaction, PasswordModify, StartTls, StartTransaction, WhoAmI);
    match choice {
        10 => {
            if let Ok(decoded) = PasswordModifyResponse::decode(value) {
                assert_eq!(PasswordModifyResponse::decode(decoded.encode().as_deref()), Ok(decoded));
            }
        }
        11 => {
            if let Ok(decoded) = EndTransactionResponse::decode(value) {
                assert_eq!(EndTransactionResponse::decode(decoded.encode().as_deref()), Ok(decoded));
            }
        }
        12 => {
            if let Ok(decoded) = SyncInfo::decode(value) {
                assert_eq!(SyncInfo::decode(Some(&decoded.encode())), Ok(decoded.clone()));
            }
        }
        13 => {
            if let Ok(decoded) = VerifyCredentialsResponse::decode(value) {
                assert_eq!(VerifyCredentialsResponse::decode(decoded.encode().as_deref()), Ok(decoded));
            }
        }
        14 => {
            // Its controls keep the bytes that came, so what is written is compared.
            if let Ok(decoded) = VerifyCredentials::decode(value) {
                let written = decoded.encode();
                let again = VerifyCredentials::decode(written.as_deref()).expect("what was written");
                assert_eq!(again.encode(), written);
            }
        }
        _ => {}
    }
});
