"""Model hubs, trackers and downloads."""

from __future__ import annotations

from safelaunch.core.why.findings import Rule

_OFFLINE = "Download on the login node beforehand; then HF_HUB_OFFLINE=1 and one shared HF_HOME."

RULES = (
    Rule(
        "hub.gated", "hub_auth",
        (b"GatedRepoError", b"Cannot access gated repo", b"gated repo", b"RepositoryNotFoundError",
         b"Repository Not Found", b"Invalid user token", b"Invalid credentials in Authorization",
         b"is restricted and you are not", b"no token found", b"LocalTokenNotFoundError"),
        b"GatedRepoError|access (?:a )?gated repo|RepositoryNotFoundError|Repository Not Found|Invalid (?:user "
        b"token|credentials in Authorization)|is restricted and you are not|no token found|LocalTokenNotFoundError",
        "cause", "job", 0.88, action="fix_config",
        summary="the hub refuses access",
        explain="The repository is gated, private or does not exist, or the token is missing.",
        do="Accept its terms, set HF_TOKEN in the job.", source="huggingface_hub", order=4,
        sample="huggingface_hub.errors.GatedRepoError: 401 Client Error.",
        counter_sample="huggingface_hub: the repo is not gated, 0 errors of the client",
    ),
    Rule(
        "hub.offline", "hub_auth",
        (b"LocalEntryNotFoundError", b"OfflineModeIsEnabled", b"We couldn't connect to 'http",
         b"Cannot find the requested files in the disk cache", b"outgoing traffic has been disabled",
         b"Cannot reach http", b"couldn't connect to 'https"),
        b"LocalEntryNotFoundError|OfflineModeIsEnabled|We couldn't connect to 'http|requested files in the "
        b"(?:disk|local) cache|outgoing traffic has been disabled", "cause", "job", 0.86, action="fix_config",
        summary="the model is not in the local cache and the hub is not reachable",
        explain="Offline mode, or compute nodes have no way out.", do=_OFFLINE, source="huggingface_hub; transformers",
        order=4,
        sample="OSError: We couldn't connect to 'https://huggingface.co' to load this file",
        counter_sample="connected to 'https://huggingface.co' to load this file",
    ),
    Rule(
        "hub.not_a_model", "hub_auth",
        (b"is not a local folder and is not a valid model identifier", b"Repo id must be in the form",
         b"Repo id must use alphanumeric", b"HFValidationError", b"Can't load tokenizer for",
         b"Can't load the model for", b"Can't load the configuration of"),
        b"is not a local folder and is not a valid model identifier|HFValidationError|Repo id must (?:be in the "
        b"form|use alphanumeric)|Can't load (?:tokenizer for|the model for|the configuration of) '(?P<name>[^']*)'",
        "cause", "job", 0.6, action="fix_config", summary="there is no such model: {name}",
        explain="A wrong path or name: a local folder that does not exist is taken for a name of the hub.",
        do="Check the path.", source="huggingface_hub; transformers", order=3,
        sample="OSError: ./models/x is not a local folder and is not a valid model identifier listed on the hub",
        counter_sample="./models/x is a local folder",
    ),
    Rule(
        "hub.cache_race", "hub_auth", (b".incomplete'", b"Could not set the permissions on the file"),
        rb"(?:FileNotFoundError|OSError|PermissionError).{0,300}?\.incomplete'"
        rb"|Could not set the permissions on the file '(?P<path>[^']*)'", "cause", "rank", 0.72, action="restart",
        summary="several ranks downloaded into one cache at once",
        explain="One moved the file that another was still writing.", do=_OFFLINE,
        source="huggingface_hub, file_download", order=4,
        sample="FileNotFoundError: [Errno 2] No such file or directory: '/cache/hub/blobs/81ab.incomplete'",
        counter_sample="FileNotFoundError: [Errno 2] No such file or directory: '/cache/x'",
    ),
    Rule(
        "hub.http_error", "hub_auth",
        (b"AuthenticationError", b"Error code: 401", b"HTTP Error 4", b"HTTP Error 5", b"Client Error: ",
         b"Server Error: ", b"HTTPStatusError", b"HfHubHTTPError", b"status code 403", b"status code 401",
         b"status code 429"),
        rb"\bAuthenticationError\b|Error code: 40[13]|HTTP Error (?P<code>[45]\d\d)|(?P<code2>[45]\d\d) (?:Client"
        rb"|Server) Error: |HTTPStatusError|HfHubHTTPError|[Ee]rror.{0,300}?status code (?P<code3>40[13]|429|50\d)",
        "cause", "job", 0.72, action="fix_config", summary="a server refused a download (HTTP {code}{code2}{code3})",
        explain="401/403 access, 404 no such file, 429 too many requests, 5xx the server's fault.", do=_OFFLINE,
        source="urllib; requests; huggingface_hub", order=2,
        sample="urllib.error.HTTPError: HTTP Error 403: Forbidden",
        counter_sample="HTTP status 403 is retried as 200: not forbidden",
    ),
    Rule(
        "hub.connection", "hub_auth",
        (b"Couldn't reach http", b"Max retries exceeded with url", b"HTTPSConnectionPool", b"HTTPConnectionPool",
         b"urlopen error", b"ConnectError", b"NewConnectionError|Couldn't reach http", b"SSLError",
         b"SSLCertVerificationError", b"CERTIFICATE_VERIFY_FAILED"),
        rb"Max retries exceeded with url|HTTPS?ConnectionPool\(host='(?P<peer>[^']*)'|urlopen error|(?:httpx"
        rb"|httpcore)\.Connect(?:Error|Timeout)|CERTIFICATE_VERIFY_FAILED|NewConnectionError|Couldn't reach http",
        "cause", "job", 0.7, action="fix_config", summary="a server could not be reached: {peer}",
        explain="The compute node has no way out, a proxy is missing, or the service is down.", do=_OFFLINE,
        source="urllib3; requests; httpx", order=2,
        sample="requests.exceptions.ConnectionError: HTTPSConnectionPool(host='api.example.org', port=443): Max "
               "retries exceeded with url: /x",
        counter_sample="the connection pool holds 3",
    ),
    Rule(
        "hub.wandb", "hub_auth", (b"wandb: ERROR", b"wandb.errors", b"api_key not configured", b"wandb login"),
        rb"api_key not configured|wandb\.(?:errors\.|sdk\.)\S{0,100}Error\b|wandb: ERROR (?!Abnormal)(?P<why>.*)",
        "cause", "job", 0.66, action="fix_config",
        summary="Weights & Biases refuses or cannot be reached: {why}",
        explain="No login in the job, no way out, or the service is down.",
        do="WANDB_API_KEY in the job, or WANDB_MODE=offline.", source="wandb", order=3,
        sample="wandb.errors.UsageError: api_key not configured (no-tty). call wandb login",
        counter_sample="wandb: api_key configured, syncing run calm-sun-8",
    ),
    Rule(
        "hub.tracker", "hub_auth", (b"mlflow.exceptions", b"neptune.", b"comet_ml", b"COMET ERROR", b"clearml"),
        rb"mlflow\.exceptions\.\w+: .{0,300}?(?:API request|refused|credentials|RESOURCE)|neptune\.\S{0,100}(?:Exc"
        rb"eption|Error)|COMET ERROR: (?P<why>.*)", "cause", "job", 0.6, action="fix_config",
        summary="the experiment tracker refuses or cannot be reached",
        explain="No login in the job, no way out, or the service is down.", source="MLflow; Neptune; Comet", order=1,
        sample="mlflow.exceptions.MlflowException: API request to http://t:5000 failed with exception",
        counter_sample="mlflow: API request to http://t:5000 took 3 s",
    ),
    Rule(
        "hub.storage_client", "hub_auth",
        (b"botocore.exceptions", b"NoCredentialsError", b"AccessDenied", b"InvalidAccessKeyId", b"ExpiredToken",
         b"DefaultCredentialsError", b"SlowDown"),
        rb"botocore\.exceptions\.\w+|NoCredentialsError|AccessDenied|InvalidAccessKeyId|ExpiredToken"
        rb"|DefaultCredentialsError", "cause", "job", 0.72, action="fix_config",
        summary="the object store refuses access", explain="Credentials are missing, expired or not allowed.",
        do="Renew them, and check that they reach the compute node.", source="botocore; google-auth", order=2,
        sample="botocore.exceptions.NoCredentialsError: Unable to locate credentials",
        counter_sample="botocore.credentials: Found credentials in shared file",
    ),
    Rule(
        "hub.registry", "hub_auth",
        (b"authentication required", b"pull access denied", b"toomanyrequests", b"denied: requested access"),
        b"unauthorized: authentication required|pull access denied for|toomanyrequests: |denied: requested access",
        "cause", "job", 0.78, action="fix_config", summary="the container registry refuses the image",
        explain="No login, no such image, or too many pulls.", do="Log in, or keep a copy of the image on the cluster.",
        source="Docker; Podman; Enroot; Apptainer", order=2,
        sample="docker: Error response from daemon: unauthorized: authentication required",
        counter_sample="docker: daemon: authentication succeeded",
    ),
    Rule(
        "hub.git", "hub_auth",
        (b"fatal: unable to access 'http", b"fatal: Authentication failed", b"could not read Username",
         b"Permission denied (publickey"),
        b"fatal: (?:unable to access 'http|Authentication failed|could not read Username)", "cause", "job", 0.66,
        action="fix_config", summary="git was refused", explain="No key or token on the node, or no way out.",
        source="git", order=2,
        sample="fatal: unable to access 'https://git.example.org/x/': Could not connect",
        counter_sample="git access to 'https://git.example.org/x/' took 3 s to connect",
    ),
    Rule(
        "hub.words", "hub_auth",
        (b"Connection error, and we cannot find", b"CAS service error", b"PERMISSION_DENIED", b"RestException",
         b"NLTK Downloader", b"Couldn't reach '"),
        rb"Connection error, and we cannot find the requested files|CAS service error|RestException: "
        rb"(?:PERMISSION_DENIED|UNAUTHENTICATED)|use the NLTK Downloader|Resource \S+ not found\.$",
        "cause", "job", 0.74,
        summary="a download or a tracker was refused or not reached",
        explain="No network on the node, no token, or the server's fault.",
        do=_OFFLINE,
        source="transformers; hf_xet; MLflow; NLTK", order=4,
        sample="mlflow.exceptions.RestException: PERMISSION_DENIED: token expired", counter_sample="CAS service is up",
    ),
    Rule(
        "hub.refused_account", "hub_auth",
        (b"ClientAuthenticationError", b"CredentialUnavailableError", b"AuthorizationFailure", b"ApiError: 401"),
        rb"(?:ClientAuthenticationError|CredentialUnavailableError): |AuthorizationFailure\b|\w{0,40}ApiError: "
        rb"40[13]\b",
        "cause", "job", 0.8, summary="the account is refused: {line}",
        explain="A key is missing, expired or of another account.",
        source="azure-core, azure-identity; SwanLab", order=2,
        sample="azure.core.exceptions.ClientAuthenticationError: Server failed to authenticate the request.",
        counter_sample="azure.core: Server authenticated the request of the client",
    ),
)
