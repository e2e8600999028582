package agent

import (
	"context"
	"fmt"
	"sync"

	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	client "k8s.io/client-go/kubernetes/typed/authentication/v1"
	"k8s.io/client-go/rest"
)

// newOwnUser returns a function that returns the agent's user name on its cluster. It asks the API server until it has
// answered once.
func newOwnUser(cluster *rest.Config) func(context.Context) (string, error) {
	var mu sync.Mutex
	var known string
	return func(ctx context.Context) (string, error) {
		mu.Lock()
		defer mu.Unlock()
		if known != "" {
			return known, nil
		}
		c, err := client.NewForConfig(cluster)
		if err != nil {
			return "", fmt.Errorf("configure a client: %w", err)
		}
		review, err := c.SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
		if err != nil {
			return "", fmt.Errorf("ask the API server: %w", err)
		}
		known = review.Status.UserInfo.Username
		return known, nil
	}
}
