#include <exception>

#include "cli/app.h"
#include "cli/console.h"

// Our code throws nothing; what a library or an empty heap throws ends here.
int main(int argc, char** argv) {
    try {
        return cellar::cli::run(argc, argv);
    } catch (const std::exception& error) {
        cellar::cli::complain(error.what());
        return 1;
    }
}
