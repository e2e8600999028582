package sharedmode

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
// but the revision then; at that revision the files may be read.
func withoutLinks(ctx context.Context, client grpc.ClientConnInterface, request []byte) ([]byte, error) {
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
	if !isTrue(request, path{filesSafely}) { // then Git lists the files, and none of submodules, but links lead there
		request = withBool(request, filesSubmodules, false)
	}
	return request, nil
}
