package shared

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
)

// Fields of a request for files, and of one for manifests.
const (
	filesSubmodules, filesRevision, filesSafely = 2, 3, 5

	manifestRevision, manifestNoCache, manifestSource, manifestSeveral = 2, 3, 10, 22
	manifestAnswerRevision                                             = 4
)

// withoutLinks makes sure that files of a repository are the repository's. The repo-server reads what it lists, and by
// default does not look where symbolic links lead: to its own files, and passwords in them. When it is asked for manifests
// it does look, at all of the repository. So it is asked for those of an Application that has none, as it answers nothing
// but the revision then; at that revision the files may be read. Where links are looked at anyway the request stays as it is.
func withoutLinks(ctx context.Context, client grpc.ClientConnInterface, request []byte) ([]byte, error) {
	if isTrue(request, path{filesSafely}) {
		return request, nil
	}
	var look []byte
	each(request, path{1}, func(repository []byte) {
		look = protowire.AppendTag(look, 1, protowire.BytesType)
		look = protowire.AppendBytes(look, repository)
	})
	look = with(look, manifestRevision, last(request, path{filesRevision}))
	look = with(look, manifestSource, string(with(nil, 1, last(request, path{1, repositoryURL}))))
	look = withBool(look, manifestSeveral, true) // one of several sources may have no manifests
	look = withBool(look, manifestNoCache, true) // else a cached answer might be older than the links
	var answer message
	if err := client.Invoke(ctx, service+"GenerateManifest", message(look), &answer); err != nil {
		return nil, err
	}
	revision := last(answer, path{manifestAnswerRevision})
	if revision == "" {
		return nil, status.Error(codes.Internal, "the hub's repo-server does not tell which revision it has looked at")
	}
	request = with(request, filesRevision, revision)
	return withBool(request, filesSubmodules, false), nil // Git lists no files of theirs, but links lead there
}
