package kube

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/argocd-agent/argocd-agent/internal/kind"
)

// User is a user of the API server.
type User struct {
	Name   string              `json:"username"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// Access is what a user wants to do with objects.
type Access struct {
	Verb      string `json:"verb"`
	Group     string `json:"group"`
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"` // if empty, all namespaces
	Name      string `json:"name,omitempty"`      // if empty, all objects
}

var (
	ownReviews    = kind.Resource{Group: "authentication.k8s.io", Version: "v1", Plural: "selfsubjectreviews", Kind: "SelfSubjectReview"}
	tokenReviews  = kind.Resource{Group: "authentication.k8s.io", Version: "v1", Plural: "tokenreviews", Kind: "TokenReview"}
	accessReviews = kind.Resource{Group: "authorization.k8s.io", Version: "v1", Plural: "subjectaccessreviews", Kind: "SubjectAccessReview"}
)

// OwnUser returns the user of the client.
func (c *Client) OwnUser(ctx context.Context) (User, error) {
	var review struct {
		Status struct {
			User User `json:"userInfo"`
		} `json:"status"`
	}
	err := c.review(ctx, ownReviews, nil, &review)
	return review.Status.User, err
}

// ReviewToken returns the user of a token. It returns false if the token is not valid for the API server.
func (c *Client) ReviewToken(ctx context.Context, token string) (User, bool, error) {
	var review struct {
		Status struct {
			Authenticated bool `json:"authenticated"`
			User          User `json:"user"`
		} `json:"status"`
	}
	if err := c.review(ctx, tokenReviews, map[string]any{"token": token}, &review); err != nil {
		return User{}, false, err
	}
	return review.Status.User, review.Status.Authenticated && review.Status.User.Name != "", nil
}

// ReviewAccess reports whether the API server allows a user an access.
func (c *Client) ReviewAccess(ctx context.Context, user User, access Access) (bool, error) {
	var review struct {
		Status struct {
			Allowed bool `json:"allowed"`
			Denied  bool `json:"denied"`
		} `json:"status"`
	}
	spec := map[string]any{"user": user.Name, "uid": user.UID, "groups": user.Groups, "extra": user.Extra, "resourceAttributes": access}
	if err := c.review(ctx, accessReviews, spec, &review); err != nil {
		return false, err
	}
	return review.Status.Allowed && !review.Status.Denied, nil
}

func (c *Client) review(ctx context.Context, r kind.Resource, spec map[string]any, result any) error {
	review := map[string]any{"apiVersion": r.Group + "/" + r.Version, "kind": r.Kind}
	if spec != nil {
		review["spec"] = spec
	}
	body, err := json.Marshal(review)
	if err != nil {
		return fmt.Errorf("encode %s: %w", r.Kind, err)
	}
	answer, err := c.send(ctx, http.MethodPost, c.urlOf(r, "", "", nil), mediaTypeJSON, mediaTypeJSON, body)
	if err == nil {
		err = json.Unmarshal(answer, result)
	}
	if err != nil {
		return fmt.Errorf("create %s: %w", r.Kind, err)
	}
	return nil
}
