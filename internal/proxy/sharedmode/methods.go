package sharedmode

import "google.golang.org/protobuf/encoding/protowire"

const service = "/repository.RepoServerService/"

// Fields of Argo CD's Repository, and of its RepoCreds.
const (
	repositoryURL  = 1
	repositoryName = 12 // only of a Repository
)

// connectFields lists the fields that decide what the repo-server connects to, with which identity, and whether it verifies
// the server. Fetched content is cached for others, too.
//
// Other fields of a Repository are harmless: with wrong credentials an agent harms only itself, and the type of the
// repository, Git LFS and the project's name do not change its address.
type connectFields struct {
	proxy, noProxy, githubAPI protowire.Number   // addresses
	googleKey                 protowire.Number   // a file that says where tokens come from
	azureIdentity             protowire.Number   // if true, the repo-server's identity is used
	insecure                  []protowire.Number // if true, the server is not verified
}

var (
	ofRepository  = connectFields{proxy: 19, noProxy: 23, githubAPI: 18, googleKey: 21, azureIdentity: 24, insecure: []protowire.Number{6, 7, 26}}
	ofCredentials = connectFields{proxy: 19, noProxy: 23, githubAPI: 10, googleKey: 13, azureIdentity: 24, insecure: []protowire.Number{26}}
)

// method has the positions of the fields to check in a request. Zero and nil mean that there is none.
type method struct {
	repositories []path // in addition to field 1
	credentials  []path // RepoCreds
	source       path   // the address in the Application's source, which must be that of the repository
	refused      []path // must be empty
	arguments    []path // of programs: must not look like one of their options

	buildOptions, programs, schemes []path // options and binaries of kustomize; schemes of value files
	sourceTypes                     path   // which types of sources are rendered

	named *applicationFields // copied from an Application

	// Parts of the cache key of manifests.
	label, tracking, installation, noCache protowire.Number

	changes bool // the response reports whether anything has changed
	files   bool // the response has files
}

// methods lists the methods that Argo CD's application controller and applicationset-controller call, and harmless ones.
// Others are denied. GenerateManifestWithFiles would let a spoke send its own content, and GetAppDetails is only for
// argocd-server and notifications.
//
// Fields that are not listed are harmless. The repo-server looks up revisions in the repository first, and keeps paths
// within it. Versions and APIs of a cluster, and parameters of charts, are text. Without a cache the agent only waits
// longer. The project's name and repositories are only for messages, and paths for plugins only matter with plugins.
var methods = map[string]method{
	service + "GenerateManifest": {
		repositories: []path{{11}, {23, 2, 1}},
		credentials:  []path{{17}},
		source:       path{10, 1},
		refused:      []path{{12}, {13, 2}},
		arguments:    []path{{10, 12}},
		buildOptions: []path{{13, 1}, {13, 3, 3}}, programs: []path{{13, 3, 2}}, schemes: []path{{21, 1}}, sourceTypes: path{20},
		named: &ofManifests,
		label: 4, tracking: 19, installation: 27, noCache: 3,
	},
	service + "UpdateRevisionForPaths": {
		repositories: []path{{7, 2, 1}},
		source:       path{5, 1},
		label:        2, tracking: 6, installation: 15,
		changes: true,
	},
	service + "ResolveRevision":         {}, // it uses only the type of the source and the name of the chart
	service + "GetGitFiles":             {files: true},
	service + "GetGitDirectories":       {},
	service + "GetRevisionMetadata":     {},
	service + "GetRevisionChartDetails": {arguments: []path{{2}}},
	service + "GetOCIMetadata":          {},
}
