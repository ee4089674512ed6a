//! Stores that are buckets of S3, and what the environment says of their servers.
use anyhow::Result;
use sheaf_archive::{S3Credentials, S3Limits, S3Place, S3Store};
use sheaf_cli::exit::Stop;
use std::path::Path;

const KEY: &str = "AWS_ACCESS_KEY_ID";
const SECRET: &str = "AWS_SECRET_ACCESS_KEY";
const TOKEN: &str = "AWS_SESSION_TOKEN";
const REGION: &str = "AWS_REGION";
const ENDPOINT: &str = "AWS_ENDPOINT_URL";
const S3_ENDPOINT: &str = "AWS_ENDPOINT_URL_S3";

/// The place that a store's name means, if it is `s3://…`.
pub fn place(store: &Path) -> Option<Result<S3Place>> {
    let text = store.to_str().filter(|text| text.starts_with("s3://"))?;
    let place = S3Place::parse(text).map(|mut place| {
        place.endpoint = variable(S3_ENDPOINT).or_else(|| variable(ENDPOINT));
        place.region = variable(REGION).unwrap_or(place.region);
        place
    });
    let wrong = || Stop::usage(format!("{text}: a bucket is s3://BUCKET or s3://BUCKET/PREFIX"));
    Some(place.ok_or_else(|| wrong().into()))
}

/// Opens or makes the store of a place.
pub fn open(
    place: &S3Place,
    how: fn(&S3Place, &S3Credentials, S3Limits) -> Result<S3Store, sheaf_archive::StoreError>,
) -> Result<Result<S3Store, sheaf_archive::StoreError>> {
    let needed = |name| {
        let missing = || Stop::usage(format!("{place}: set {KEY} and {SECRET}"));
        variable(name).ok_or_else(missing)
    };
    let credentials = S3Credentials {
        access_key_id: needed(KEY)?,
        secret_access_key: needed(SECRET)?,
        session_token: variable(TOKEN),
    };
    Ok(how(place, &credentials, S3Limits::default()))
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}
