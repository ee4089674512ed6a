//! Stores that are buckets of S3, and what the environment says of their servers.
use super::profile::Profile;
use anyhow::{Context, Result};
use sheaf_archive::{
    S3Access, S3Credentials, S3Encryption, S3Identity, S3Limits, S3Place, S3Store, StoreError,
};
use sheaf_cli::exit::Stop;
use sheaf_core::Errno;
use std::path::{Path, PathBuf};

const KEY: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";

/// What the name of a store says of objects that are written.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BucketOptions {
    /// The storage class of packs and large files.
    pub storage_class: Option<String>,
    /// How the server encrypts.
    pub encryption: Option<S3Encryption>,
}

impl BucketOptions {
    /// Splits them off the URL of a bucket: `?storage-class=CLASS&sse=KIND`. Another query is part of
    /// the URL; a wrong value would make it another store, and is refused.
    fn split(text: &str) -> Result<(&str, Self)> {
        let whole = || Ok((text, Self::default()));
        let Some((url, query)) = text.rsplit_once('?') else { return whole() };
        let wrong = |why| Stop::usage(format!("{text}: {why}"));
        let mut options = Self::default();
        for said in query.split('&') {
            match said.split_once('=') {
                Some(("storage-class", class)) => {
                    options.storage_class = Some(storage_class(class).map_err(wrong)?);
                }
                Some(("sse", kind)) => options.encryption = Some(encryption(kind).map_err(wrong)?),
                _ => return whole(),
            }
        }
        Ok((url, options))
    }

    /// The name of a store with these, besides what it says itself.
    pub fn name(&self, store: &Path) -> Result<PathBuf> {
        if *self == Self::default() {
            return Ok(store.to_owned());
        }
        let Some(text) = store.to_str().filter(|text| text.starts_with("s3://")) else {
            let text = "--storage-class and --sse are for buckets: s3://BUCKET/PREFIX";
            return Err(Stop::usage(text).into());
        };
        let (url, said) = Self::split(text)?;
        let class = self.storage_class.as_ref().or(said.storage_class.as_ref());
        let kind = self.encryption.as_ref().or(said.encryption.as_ref()).map(|kind| match kind {
            S3Encryption::Bucket => BUCKET.to_owned(),
            S3Encryption::KeyService(None) => KEY_SERVICE.to_owned(),
            S3Encryption::KeyService(Some(key)) => format!("{KEY_SERVICE}:{key}"),
        });
        let said = [
            class.map(|class| format!("storage-class={class}")),
            kind.map(|kind| format!("sse={kind}")),
        ];
        let said: Vec<String> = said.into_iter().flatten().collect();
        Ok(format!("{url}?{}", said.join("&")).into())
    }
}

const BUCKET: &str = "AES256";
const KEY_SERVICE: &str = "aws:kms";

fn is_storage_class(text: &str) -> bool {
    let is_plain = |byte: u8| byte.is_ascii_uppercase() || byte.is_ascii_digit() || byte == b'_';
    !text.is_empty() && text.bytes().all(is_plain)
}

/// Reads a storage class.
pub fn storage_class(text: &str) -> Result<String, String> {
    if is_storage_class(text) {
        return Ok(text.to_owned());
    }
    Err("a storage class is one of the server's: STANDARD_IA, GLACIER_IR, …".to_owned())
}

/// Reads how a server encrypts: `AES256`, `aws:kms` or `aws:kms:KEY`.
pub fn encryption(text: &str) -> Result<S3Encryption, String> {
    let is_key = |key: &str| {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_:/".contains(&byte);
        !key.is_empty() && key.bytes().all(is_plain)
    };
    match (text, text.strip_prefix("aws:kms:")) {
        (BUCKET, _) => Ok(S3Encryption::Bucket),
        (KEY_SERVICE, _) => Ok(S3Encryption::KeyService(None)),
        (_, Some(key)) if is_key(key) => Ok(S3Encryption::KeyService(Some(key.to_owned()))),
        _ => Err("servers encrypt by AES256, aws:kms or aws:kms:KEY".to_owned()),
    }
}

/// The place that a store's name means, if it is `s3://…`, and how it is written to.
pub fn place(store: &Path) -> Option<Result<(S3Place, BucketOptions)>> {
    let text = store.to_str().filter(|text| text.starts_with("s3://"))?;
    let wrong = || Stop::usage(format!("{text}: a bucket is s3://BUCKET or s3://BUCKET/PREFIX"));
    let (url, options) = match BucketOptions::split(text) {
        Ok(split) => split,
        Err(error) => return Some(Err(error)),
    };
    let Some(mut place) = S3Place::parse(url) else { return Some(Err(wrong().into())) };
    Some(Profile::of_environment().and_then(|profile| {
        let endpoint = variable("AWS_ENDPOINT_URL_S3").or_else(|| variable("AWS_ENDPOINT_URL"));
        place.endpoint = endpoint.or_else(|| profile.value("endpoint_url"));
        let region = variable("AWS_REGION").or_else(|| variable("AWS_DEFAULT_REGION"));
        if let Some(region) = region.or_else(|| profile.value("region")) {
            let wrong = || Stop::usage(format!("{text}: {region:?} is no region"));
            place = place.in_region(&region).ok_or_else(wrong)?;
        }
        Ok((place, options))
    }))
}

/// Opens or makes the store of a place.
pub fn open(
    (place, options): &(S3Place, BucketOptions),
    how: fn(&S3Place, &S3Access, S3Limits) -> Result<S3Store, StoreError>,
) -> Result<Result<S3Store, StoreError>> {
    let access = access(place, options)?;
    let opened = how(place, &access, S3Limits::default());
    match (opened, access.identity) {
        // It was the last resort: nobody has said who one is.
        (Err(error), S3Identity::Instance(None)) if error.errno == Errno::NOKEY => {
            let text = format!(
                "{place}: there are no credentials: set {KEY} and {SECRET}, or name a profile of \
                 ~/.aws with AWS_PROFILE"
            );
            Err(Stop::usage(text).into())
        }
        (opened, _) => Ok(opened),
    }
}

/// Who one is there, in the order in which the programs of AWS look for it: the environment, the
/// profile, the token of a service account, the container's host, the machine.
fn access(place: &S3Place, options: &BucketOptions) -> Result<S3Access> {
    let profile = Profile::of_environment()?;
    let identity = identity(place, &profile)?;
    let authorities = variable("AWS_CA_BUNDLE").or_else(|| profile.value("ca_bundle"));
    let authorities = authorities.map(|file| std::fs::read(&file).with_context(|| file));
    Ok(S3Access {
        authorities: authorities.transpose()?,
        is_virtual_hosted: profile.value("s3.addressing_style").as_deref() == Some("virtual"),
        storage_class: options.storage_class.clone(),
        encryption: options.encryption.clone(),
        ..identity.into()
    })
}

fn identity(place: &S3Place, profile: &Profile) -> Result<S3Identity> {
    // A profile that is named is meant, whatever else the environment says.
    if !profile.is_named
        && let Some(keys) = pair(place, (KEY, SECRET), "AWS_SESSION_TOKEN", &variable)?
    {
        return Ok(S3Identity::Keys(keys));
    }
    let of_profile = |name: &str| profile.value(name);
    let names = ("aws_access_key_id", "aws_secret_access_key");
    if let Some(keys) = pair(place, names, "aws_session_token", &of_profile)? {
        return Ok(S3Identity::Keys(keys));
    }
    if let Some(command) = profile.value("credential_process") {
        return Ok(S3Identity::Process(command));
    }
    let role = |token_file: Option<String>, role_arn: Option<String>, session_name| {
        let endpoint = variable("AWS_ENDPOINT_URL_STS");
        let (token_file, role_arn) = token_file.zip(role_arn)?;
        Some(S3Identity::WebIdentity { token_file, role_arn, session_name, endpoint })
    };
    let of_profile = role(
        profile.value("web_identity_token_file"),
        profile.value("role_arn"),
        profile.value("role_session_name"),
    );
    if let Some(identity) = of_profile {
        return Ok(identity);
    }
    if let Some(kind) = profile.unknown_kind() {
        let text = format!(
            "{place}: profile {} gets its credentials by {kind}, which Sheaf does not do: have \
             credential_process = aws configure export-credentials --profile {} in another profile",
            profile.name, profile.name
        );
        return Err(Stop::usage(text).into());
    }
    if profile.is_named {
        let text = format!("{place}: profile {} has no credentials", profile.name);
        return Err(Stop::usage(text).into());
    }
    let of_environment = role(
        variable("AWS_WEB_IDENTITY_TOKEN_FILE"),
        variable("AWS_ROLE_ARN"),
        variable("AWS_ROLE_SESSION_NAME"),
    );
    if let Some(identity) = of_environment {
        return Ok(identity);
    }
    if let Some(path) = variable("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI") {
        return Ok(S3Identity::Container(path));
    }
    let url = variable("AWS_CONTAINER_CREDENTIALS_FULL_URI");
    if let Some((url, token_file)) = url.zip(variable("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE")) {
        return Ok(S3Identity::ContainerUrl { url, token_file });
    }
    if variable("AWS_EC2_METADATA_DISABLED").is_some_and(|value| value == "true") {
        let text = format!("{place}: there are no credentials: set {KEY} and {SECRET}");
        return Err(Stop::usage(text).into());
    }
    Ok(S3Identity::Instance(variable("AWS_EC2_METADATA_SERVICE_ENDPOINT")))
}

/// Keys that are written down somewhere: both or none.
fn pair(
    place: &S3Place,
    (key, secret): (&str, &str),
    token: &str,
    value: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<S3Credentials>> {
    match (value(key), value(secret)) {
        (Some(access_key_id), Some(secret_access_key)) => Ok(Some(S3Credentials {
            access_key_id,
            secret_access_key,
            session_token: value(token),
        })),
        (None, None) => Ok(None),
        _ => Err(Stop::usage(format!("{place}: set {key} and {secret}")).into()),
    }
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_of_a_bucket_says_how_it_is_written_to() {
        let options = BucketOptions {
            storage_class: Some("STANDARD_IA".to_owned()),
            encryption: Some(encryption("aws:kms:arn:aws:kms:eu-central-1:1:key/2-a").unwrap()),
        };
        let name = options.name(Path::new("s3://b/p")).unwrap();
        let text =
            "s3://b/p?storage-class=STANDARD_IA&sse=aws:kms:arn:aws:kms:eu-central-1:1:key/2-a";
        assert_eq!(name, Path::new(text));
        assert_eq!(BucketOptions::split(text).unwrap(), ("s3://b/p", options.clone()));
        let other = BucketOptions { encryption: Some(S3Encryption::Bucket), ..Default::default() };
        let both = other.name(&name).unwrap();
        assert_eq!(both, Path::new("s3://b/p?storage-class=STANDARD_IA&sse=AES256"));
        assert!(options.name(Path::new("/backup")).is_err());
        assert_eq!(BucketOptions::default().name(Path::new("/b")).unwrap(), Path::new("/b"));
        for part in ["s3://b/what?", "s3://b/p?x=y"] {
            assert_eq!(BucketOptions::split(part).unwrap(), (part, BucketOptions::default()));
        }
        for wrong in ["s3://b/p?sse=none", "s3://b/p?storage-class=a"] {
            assert!(BucketOptions::split(wrong).is_err(), "{wrong}");
        }
    }
}
