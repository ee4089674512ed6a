//! Who one is to a server of S3: what of it the client library has not got is done here.
use super::{S3Access, S3Credentials, S3Encryption, S3Identity};
use chrono::{DateTime, Utc};
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, AwsCredential};
use object_store::client::CredentialProvider;
use object_store::{Certificate, ClientOptions};
use serde::Deserialize;
use std::fmt;
use std::pin::Pin;
use std::process::Stdio;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::Mutex;

/// How long a command may take that prints credentials.
const PROCESS_TIME: Duration = Duration::from_secs(60);
/// What it may print.
const PROCESS_BYTES_MAX: u64 = 64 << 10;
/// Credentials are made anew so long before they end.
const RENEWED_BEFORE: Duration = Duration::from_secs(300);
/// How long it may take to get any.
const IDENTITY_TIME: Duration = Duration::from_secs(70);

/// Why what was said of the access cannot be used.
pub(super) struct Refused(pub &'static str);

/// `options` with the authorities that are trusted besides those of the system.
pub(super) fn with_authorities(
    mut options: ClientOptions,
    access: &S3Access,
) -> Result<ClientOptions, Refused> {
    let Some(pem) = &access.authorities else { return Ok(options) };
    let wrong = Refused("the file of authorities ($AWS_CA_BUNDLE) has no certificates as PEM");
    let certificates = match Certificate::from_pem_bundle(pem) {
        Ok(certificates) if !certificates.is_empty() => certificates,
        _ => return Err(wrong),
    };
    for certificate in certificates {
        options = options.with_root_certificate(certificate);
    }
    Ok(options)
}

/// `builder` with who one is, and how objects are encrypted.
pub(super) fn with_access(builder: AmazonS3Builder, access: &S3Access) -> AmazonS3Builder {
    use AmazonS3ConfigKey as Key;
    let set = |builder: AmazonS3Builder, key: Key, value: &Option<String>| match value {
        Some(value) => builder.with_config(key, value),
        None => builder,
    };
    let builder = match &access.identity {
        S3Identity::Keys(keys) => {
            let builder = builder
                .with_access_key_id(&keys.access_key_id)
                .with_secret_access_key(&keys.secret_access_key);
            set(builder, Key::Token, &keys.session_token)
        }
        S3Identity::Process(command) => builder.with_credentials(Arc::new(ProcessProvider {
            command: command.clone(),
            known: Mutex::default(),
        })),
        S3Identity::WebIdentity { token_file, role_arn, session_name, endpoint } => {
            let builder = builder
                .with_config(Key::WebIdentityTokenFile, token_file)
                .with_config(Key::RoleArn, role_arn);
            let builder = set(builder, Key::RoleSessionName, session_name);
            set(builder, Key::StsEndpoint, endpoint)
        }
        S3Identity::Container(path) => {
            builder.with_config(Key::ContainerCredentialsRelativeUri, path)
        }
        S3Identity::ContainerUrl { url, token_file } => builder
            .with_config(Key::ContainerCredentialsFullUri, url)
            .with_config(Key::ContainerAuthorizationTokenFile, token_file),
        S3Identity::Instance(None) => builder,
        S3Identity::Instance(Some(endpoint)) => builder.with_metadata_endpoint(endpoint),
    };
    let kind = "aws_server_side_encryption".parse::<Key>().expect("the client library has it");
    match &access.encryption {
        None => builder,
        Some(S3Encryption::Bucket) => builder.with_config(kind, "AES256"),
        Some(S3Encryption::KeyService(None)) => builder.with_config(kind, "aws:kms"),
        Some(S3Encryption::KeyService(Some(key))) => builder.with_sse_kms_encryption(key),
    }
}

/// Credentials that were fetched, and until when they hold.
type Known = (Arc<AwsCredential>, Option<DateTime<Utc>>);

/// Credentials that a command prints.
struct ProcessProvider {
    command: String,
    known: Mutex<Option<Known>>,
}

impl fmt::Debug for ProcessProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProcessProvider(..)")
    }
}

/// What such a command prints: version 1 is the only one.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Printed {
    version: u32,
    access_key_id: String,
    secret_access_key: String,
    session_token: Option<String>,
    expiration: Option<DateTime<Utc>>,
}

impl ProcessProvider {
    async fn fetch(&self) -> Result<(S3Credentials, Option<DateTime<Utc>>), String> {
        use tokio::io::AsyncReadExt as _;
        let mut child = tokio::process::Command::new("/bin/sh")
            .args(["-c", &self.command])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .map_err(|error| error.to_string())?;
        let mut text = Vec::new();
        let output = child.stdout.take().ok_or("it has no output")?;
        let ended = tokio::time::timeout(PROCESS_TIME, async {
            output.take(PROCESS_BYTES_MAX).read_to_end(&mut text).await?;
            child.wait().await
        });
        let status = ended.await.map_err(|_| "it does not end".to_owned())?;
        let status = status.map_err(|error| error.to_string())?;
        if !status.success() {
            return Err(format!("it failed ({status})"));
        }
        let printed: Printed =
            serde_json::from_slice(&text).map_err(|_| "it printed no credentials".to_owned())?;
        if printed.version != 1 {
            return Err(format!("it printed credentials of version {}", printed.version));
        }
        let credentials = S3Credentials {
            access_key_id: printed.access_key_id,
            secret_access_key: printed.secret_access_key,
            session_token: printed.session_token,
        };
        Ok((credentials, printed.expiration))
    }
}

impl CredentialProvider for ProcessProvider {
    type Credential = AwsCredential;

    fn get_credential<'a, 'b>(
        &'a self,
    ) -> Pin<Box<dyn Future<Output = object_store::Result<Arc<AwsCredential>>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.get())
    }
}

impl ProcessProvider {
    async fn get(&self) -> object_store::Result<Arc<AwsCredential>> {
        let mut known = self.known.lock().await;
        if let Some((credential, until)) = &*known
            && until.is_none_or(|until| Utc::now() + RENEWED_BEFORE < until)
        {
            return Ok(credential.clone());
        }
        let (credentials, until) = self.fetch().await.map_err(|why| {
            let source = why.into();
            object_store::Error::Generic { store: "credential_process", source }
        })?;
        let credential = Arc::new(AwsCredential {
            key_id: credentials.access_key_id,
            secret_key: credentials.secret_access_key,
            token: credentials.session_token,
        });
        *known = Some((credential.clone(), until));
        Ok(credential)
    }
}

/// Gets credentials once, so that what goes wrong is said of them.
pub(super) async fn check(s3: &AmazonS3, identity: &S3Identity) -> Result<(), Refused> {
    let refused = Refused(match identity {
        S3Identity::Keys(_) => "the keys cannot be used",
        S3Identity::Process(_) => "credential_process gives no credentials",
        S3Identity::WebIdentity { .. } => {
            "the token service gives no credentials for the token of AWS_WEB_IDENTITY_TOKEN_FILE"
        }
        S3Identity::ContainerUrl { token_file, .. } if !has_header(token_file) => {
            return Err(Refused(
                "the file of AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE has no token, or one with an end of a line",
            ));
        }
        S3Identity::Container(_) | S3Identity::ContainerUrl { .. } => {
            "the container's host gives no credentials"
        }
        S3Identity::Instance(_) => "this machine has no role of EC2, which would give credentials",
    });
    match tokio::time::timeout(IDENTITY_TIME, s3.credentials().get_credential()).await {
        Ok(Ok(got)) => {
            let is_right = is_header(&got.key_id) && got.token.as_deref().is_none_or(is_header);
            is_right.then_some(()).ok_or(Refused("the credentials have bytes that no key has"))
        }
        Ok(Err(_)) | Err(_) => Err(refused),
    }
}

/// Whether this can be in a header of a request; the client library panics over what cannot.
fn is_header(text: &str) -> bool {
    text.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic())
}

/// Whether this file has what can be in a header.
fn has_header(file: &str) -> bool {
    std::fs::read_to_string(file).is_ok_and(|text| !text.is_empty() && is_header(&text))
}
