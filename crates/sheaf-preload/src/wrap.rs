//! How a function of the C library is stood in for.

/// Functions with the C library's names: each calls the one behind it and records what came of it.
///
/// Behind the signature stands what is recorded of the call, an operation and a
/// [`Did`](crate::turn::Did) that sees the arguments and the result; `before` is looked at before
/// the call, of what is gone afterwards. A function that this C library
/// does not have fails with `ENOSYS`, as the ones that look for it expect. `SYMBOLS` are the names
/// of a module's functions.
macro_rules! wrap {
    ($(fn $name:ident($($arg:ident: $kind:ty),* $(,)?) -> $result:ty
        = $op:ident, $(before $before:ident = $look:expr,)? |$came:ident| $did:expr;)*) => {
        $(
            #[unsafe(no_mangle)]
            pub unsafe extern "C" fn $name($($arg: $kind),*) -> $result {
                static REAL: $crate::real::Real = $crate::real::Real::of(
                    match std::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes()) {
                        Ok(name) => name,
                        Err(_) => panic!("a name without a zero"),
                    },
                );
                let real = REAL.find();
                if real.is_null() {
                    return $crate::turn::missing();
                }
                let real: unsafe extern "C" fn($($kind),*) -> $result =
                    // SAFETY: it is the function of this name, which has this signature.
                    unsafe { std::mem::transmute(real) };
                let Some(turn) = $crate::turn::TracedCall::begin() else {
                    // SAFETY: as our caller vouches for.
                    return unsafe { real($($arg),*) };
                };
                // SAFETY: as our caller vouches for.
                $(#[allow(unused_unsafe)] let $before = unsafe { $look };)?
                let begun = turn.now();
                // SAFETY: as our caller vouches for.
                let $came = unsafe { real($($arg),*) };
                let ended = turn.now();
                // SAFETY: as our caller vouches for.
                #[allow(unused_unsafe)]
                let did = unsafe { $did };
                turn.end(sheaf_recorder::IoOp::$op, begun, ended, did);
                $came
            }
        )*

        /// The names of these functions.
        #[used]
        pub static SYMBOLS: &[&str] = &[$(stringify!($name),)*];
    };
}
