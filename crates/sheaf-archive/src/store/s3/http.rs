//! Requests on their way: what a server refuses becomes an error that says why.
use super::failure::S3Refusal;
use futures_util::StreamExt as _;
use object_store::HeaderValue;
use object_store::client::{
    ClientOptions, HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService, ReqwestConnector,
};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

/// What is read at most of why a server refuses something.
const REFUSAL_BYTES_MAX: usize = 64 << 10;

/// Makes connections whose refusals are errors.
#[derive(Debug)]
pub(super) struct S3Connector {
    /// Whether the server takes a condition where an upload is completed.
    pub conditional: Arc<AtomicBool>,
}

impl HttpConnector for S3Connector {
    fn connect(&self, options: &ClientOptions) -> object_store::Result<HttpClient> {
        let inner = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(S3Service { inner, conditional: self.conditional.clone() }))
    }
}

#[derive(Debug)]
struct S3Service {
    inner: HttpClient,
    conditional: Arc<AtomicBool>,
}

impl HttpService for S3Service {
    fn call<'a, 'b>(
        &'a self,
        request: HttpRequest,
    ) -> Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'b>>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(self.send(request))
    }
}

impl S3Service {
    async fn send(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let completes = request.method().as_str() == "POST"
            && request.uri().query().is_some_and(|query| query.starts_with("uploadId="));
        if completes && self.conditional.load(Ordering::Relaxed) {
            // It is no part of what is signed.
            request.headers_mut().insert("if-none-match", HeaderValue::from_static("*"));
        }
        let answer = self.inner.execute(request).await?;
        let status = answer.status().as_u16();
        let is_success = (200..300).contains(&status);
        if is_success && !completes {
            return Ok(answer);
        }
        let header = |name: &str| answer.headers().get(name)?.to_str().ok()?.parse().ok();
        let wait = header("retry-after").map(Duration::from_secs);
        let (head, body) = answer.into_parts();
        let text = read(body).await?;
        // Completing takes long, and may begin with success before it fails.
        if is_success && !text.contains("<Error>") {
            return Ok(HttpResponse::from_parts(head, text.into()));
        }
        let refusal = S3Refusal { status, code: code(&text), wait };
        Err(HttpError::new(HttpErrorKind::Unknown, refusal))
    }
}

/// The beginning of an answer.
async fn read(body: HttpResponseBody) -> Result<String, HttpError> {
    let (mut body, mut bytes) = (body.bytes_stream(), Vec::new());
    while let Some(more) = body.next().await {
        bytes.extend_from_slice(&more?);
        if bytes.len() > REFUSAL_BYTES_MAX {
            break;
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The code of an error.
fn code(text: &str) -> String {
    let code = text.split_once("<Code>").and_then(|(_, rest)| rest.split_once("</Code>"));
    code.map_or_else(String::new, |(code, _)| code.trim().to_owned())
}
