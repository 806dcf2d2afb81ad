"""Model hubs, trackers and downloads."""

from __future__ import annotations

from safelaunch.why.findings import Rule

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
        "hub.http_error", "hub_auth",
        (b"AuthenticationError", b"Error code: 401", b"HTTP Error 4", b"HTTP Error 5", b"Client Error: ",
         b"Server Error: ", b"HTTPStatusError", b"HfHubHTTPError", b"status code 403", b"status code 401",
         b"status code 429"),
        rb"\bAuthenticationError\b|Error code: 40[13]|HTTP Error (?P<code>[45]\d\d)|(?P<code2>[45]\d\d) (?:Client"
        rb"|Server) Error: |HTTPStatusError|HfHubHTTPError(?:: (?P<code4>[45]\d\d))?"
        rb"|[Ee]rror.{0,300}?status code (?P<code3>40[13]|429|50\d)",
        "cause", "job", 0.72, action="fix_config",
        summary="a server refused a download (HTTP {code}{code2}{code3}{code4})",
        explain="401/403 access, 404 no such file, 429 too many requests, 5xx the server's fault.", do=_OFFLINE,
        source="urllib; requests; huggingface_hub", order=2,
        sample="urllib.error.HTTPError: HTTP Error 403: Forbidden",
        counter_sample="HTTP status 403 is retried as 200: not forbidden",
    ),
)
